//! Rank arithmetic and buffer names that several algorithms share. No schedules here.

use crate::schedule::{Buffer, Span};
use crate::types::Rank;

/// The first `count` elements of Input and of Output.
pub(crate) fn whole(count: usize) -> (Span, Span) {
    (Span::new(Buffer::Input, 0, count), Span::new(Buffer::Output, 0, count))
}

/// The largest power of two that is at most `n` (`n` at least 1).
pub(crate) const fn power_of_two_at_most(n: usize) -> usize {
    1 << n.ilog2()
}

/// Reduces any number of ranks to a power of two: the first `2 * (p - p')` ranks form pairs of neighbours; the even
/// one of a pair hands its data to the odd one and waits for the result.
///
/// Combined intervals of ranks stay contiguous and in order, so non-commutative operations may use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    rank: usize,
    /// Ranks beyond the power of two.
    extra: usize,
    /// The power of two.
    active: usize,
}

impl Fold {
    pub(crate) const fn new(rank: usize, size: usize) -> Fold {
        let active = power_of_two_at_most(size);
        Fold { rank, extra: size - active, active }
    }

    /// The other of this rank's pair, and whether this rank keeps (true) or hands over (false) its data.
    pub(crate) fn partner(&self) -> Option<(Rank, bool)> {
        (self.rank < 2 * self.extra).then(|| (Rank::from(self.rank ^ 1), self.rank % 2 == 1))
    }

    /// Ranks that remain active: the power of two.
    pub(crate) const fn active(&self) -> usize {
        self.active
    }

    /// This rank's number among the active ones; `None` for a rank that handed its data over.
    pub(crate) const fn number(&self) -> Option<usize> {
        if self.rank >= 2 * self.extra {
            Some(self.rank - self.extra)
        } else if self.rank % 2 == 1 {
            Some(self.rank / 2)
        } else {
            None
        }
    }

    /// The rank with a number among the active ones.
    pub(crate) fn rank_of(&self, number: usize) -> Rank {
        Rank::from(if number < self.extra { 2 * number + 1 } else { number + self.extra })
    }

    /// Partners of recursive doubling, nearest first; empty for a rank that is not active.
    pub(crate) fn exchange_peers(&self) -> impl Iterator<Item = Rank> + use<> {
        let fold = *self;
        let number = self.number();
        let rounds = if number.is_some() { self.active.ilog2() } else { 0 };
        (0..rounds).map(move |k| fold.rank_of(number.unwrap_or(0) ^ (1 << k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_a_power_of_two_and_every_number_once() {
        for size in 1..70 {
            let numbers: Vec<usize> =
                (0..size).filter_map(|rank| Fold::new(rank, size).number()).collect();
            let active = Fold::new(0, size).active();
            assert_eq!(numbers, (0..active).collect::<Vec<_>>(), "size {size}");
            for rank in 0..size {
                let fold = Fold::new(rank, size);
                if let Some(number) = fold.number() {
                    assert_eq!(fold.rank_of(number).index(), rank);
                }
                for peer in fold.exchange_peers() {
                    let back: Vec<Rank> = Fold::new(peer.index(), size).exchange_peers().collect();
                    assert!(back.contains(&Rank::from(rank)));
                }
            }
        }
    }
}
