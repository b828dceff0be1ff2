//! When to ask rank 0: not where it has said "as usual" time after time.
//!
//! Asking costs a message each way, which is much for a small collective on host memory. Ranks must agree on whether to
//! ask, so what counts is what all of them know: the answers to the blocking collectives of the communicator, which follow
//! each other. Nonblocking ones always ask.

use rustc_hash::FxHashMap;

/// So many times in a row "as usual", and then ranks stop asking,
const PATIENCE: u8 = 3;
/// for so many calls of the same kind.
const PAUSE: u16 = 1000;
/// Kinds of calls that are remembered.
const REMEMBERED: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct History {
    as_usual: u8,
    pause: u16,
}

/// The answers so far, by kind of call.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    kinds: FxHashMap<u64, History>,
}

impl Asking {
    /// Whether to ask about the next blocking call of this kind.
    pub(crate) fn next(&mut self, kind: u64) -> bool {
        match self.kinds.get_mut(&kind) {
            Some(History { pause, .. }) if *pause > 0 => {
                *pause -= 1;
                false
            }
            _ => true,
        }
    }

    /// Notes the answer to a blocking call.
    pub(crate) fn note(&mut self, kind: u64, as_usual: bool) {
        if self.kinds.len() >= REMEMBERED {
            self.kinds.clear();
        }
        let history = self.kinds.entry(kind).or_default();
        history.as_usual = if as_usual { history.as_usual + 1 } else { 0 };
        if history.as_usual >= PATIENCE {
            *history = History { as_usual: 0, pause: PAUSE };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_refusals_pause_the_asking() {
        let mut asking = Asking::default();
        for kind in [1, 2] {
            for _ in 0..2 {
                assert!(asking.next(kind));
                asking.note(kind, true);
            }
        }
        asking.note(1, true);
        asking.note(2, false);
        assert!(!asking.next(1) && asking.next(2));
        assert_eq!((0..2000).take_while(|_| !asking.next(1)).count(), usize::from(PAUSE) - 1);
        assert!(asking.next(1), "asks again after the pause");
    }
}
