//! Rank arithmetic and buffer names that several algorithms share. No schedules here.

use crate::call::Block;
use crate::schedule::{Buffer, Span};
use crate::types::Rank;

/// The first `count` elements of Input and of Output.
pub(crate) fn whole(count: usize) -> (Span, Span) {
    (Span::new(Buffer::Input, 0, count), Span::new(Buffer::Output, 0, count))
}

/// A block of Input or Output as a span.
pub(crate) fn span(buffer: Buffer, block: Block) -> Span {
    Span::new(buffer, block.start, block.len)
}

/// Part `index` of `count` elements cut into `parts` as evenly as possible; the first parts are the longer ones.
pub(crate) fn even_part(count: usize, parts: usize, index: usize) -> Block {
    let (quotient, remainder) = (count / parts, count % parts);
    let start = index * quotient + index.min(remainder);
    Block { start, len: quotient + usize::from(index < remainder) }
}

/// Parts `from..to` of an even cut, as one block.
pub(crate) fn even_range(count: usize, parts: usize, from: usize, to: usize) -> Block {
    let start = if from < parts { even_part(count, parts, from).start } else { count };
    let end = if to < parts { even_part(count, parts, to).start } else { count };
    Block { start, len: end - start }
}

/// The order in which a rank meets those of another group: for each step, whom it sends to and whom it receives from.
///
/// Both ends have a message in the same step, so windows of messages cannot wait for each other in a circle.
pub(crate) fn crossing(
    rank: usize,
    local: usize,
    remote: usize,
) -> impl Iterator<Item = (Option<usize>, Option<usize>)> {
    let steps = local.max(remote);
    let exists = move |peer: usize| (peer < remote).then_some(peer);
    (0..steps)
        .map(move |step| (exists((rank + step) % steps), exists((rank + steps - step) % steps)))
}

/// The chunks of `len` elements, as (offset, length), each at most `chunk` long.
pub(crate) fn chunks(len: usize, chunk: usize) -> impl Iterator<Item = (usize, usize)> {
    let chunk = chunk.clamp(1, len.max(1));
    (0..len.div_ceil(chunk)).map(move |i| (i * chunk, chunk.min(len - i * chunk)))
}

/// A k-nomial tree over `0..size` with root 0, each subtree a contiguous interval.
///
/// Node v hangs below the node that has v's lowest non-zero digit (base k) cleared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    node: usize,
    size: usize,
    radix: usize,
}

impl Tree {
    pub(crate) const fn new(node: usize, size: usize, radix: usize) -> Tree {
        Tree { node, size, radix }
    }

    /// The weight of the lowest non-zero digit; for the root, of a digit above all.
    const fn weight(&self) -> usize {
        let mut weight = 1;
        while weight < self.size && (self.node / weight).is_multiple_of(self.radix) {
            weight *= self.radix;
        }
        weight
    }

    /// The parent; `None` for the root.
    pub(crate) const fn parent(&self) -> Option<usize> {
        if self.node == 0 {
            return None;
        }
        let weight = self.weight();
        Some(self.node - (self.node / weight) % self.radix * weight)
    }

    /// The children, nearest first: the intervals of their subtrees follow each other from `node + 1` on.
    pub(crate) fn children(&self) -> Vec<usize> {
        let mut children = Vec::new();
        let (top, mut weight) = (self.weight(), 1);
        while weight < top {
            let at_this_weight = (1..self.radix).map(|digit| self.node + digit * weight);
            children.extend(at_this_weight.take_while(|&child| child < self.size));
            weight *= self.radix;
        }
        children
    }

    /// Nodes of the subtree below and including `child`, one of this node's children (or the node itself).
    pub(crate) fn subtree_len(&self, child: usize) -> usize {
        let weight = Tree::new(child, self.size, self.radix).weight();
        weight.min(self.size - child)
    }
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

    /// The first rank whose data an active rank has: the other of its pair, or itself.
    pub(crate) const fn first_of(&self, number: usize) -> usize {
        if number < self.extra { 2 * number } else { number + self.extra }
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
    fn parts_tile_the_whole() {
        for (count, parts) in [(0, 3), (1, 4), (10, 3), (12, 4), (7, 7), (100, 9)] {
            let mut at = 0;
            for index in 0..parts {
                let part = even_part(count, parts, index);
                assert_eq!(part.start, at, "{count} in {parts}");
                at += part.len;
                assert_eq!(even_range(count, parts, 0, index + 1).len, at);
            }
            assert_eq!(at, count);
        }
        assert_eq!(chunks(10, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(chunks(0, 4).count(), 0);
    }

    #[test]
    fn groups_cross_with_both_ends_in_one_step() {
        for (local, remote) in [(1, 1), (1, 5), (4, 4), (3, 7), (8, 2)] {
            let mut messages = 0;
            for rank in 0..local {
                for (step, (to, from)) in crossing(rank, local, remote).enumerate() {
                    let there = |peer: usize| crossing(peer, remote, local).nth(step).unwrap();
                    assert!(to.is_none_or(|peer| there(peer).1 == Some(rank)));
                    assert!(from.is_none_or(|peer| there(peer).0 == Some(rank)));
                    messages += usize::from(to.is_some()) + usize::from(from.is_some());
                }
            }
            assert_eq!(messages, 2 * local * remote, "{local} and {remote} ranks");
        }
    }

    #[test]
    fn trees_have_one_parent_each_and_contiguous_subtrees() {
        for radix in [2, 3, 4, 8] {
            for size in 1..70 {
                let mut parents = vec![None; size];
                for node in 0..size {
                    let tree = Tree::new(node, size, radix);
                    let mut next = node + 1;
                    for child in tree.children() {
                        assert_eq!(child, next, "radix {radix} size {size} node {node}");
                        next += tree.subtree_len(child);
                        assert!(parents[child].replace(node).is_none());
                    }
                    assert_eq!(next, node + tree.subtree_len(node));
                }
                for (node, parent) in parents.into_iter().enumerate() {
                    assert_eq!(Tree::new(node, size, radix).parent(), parent);
                }
            }
        }
    }

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
