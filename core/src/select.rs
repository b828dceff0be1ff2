//! Picks the algorithm of a call from a constant table.
//!
//! Only what all ranks agree on is looked at: collective, size, payload, whether the operation commutes,
//! and the settings. Never this rank's memory type, and nothing measured on one rank alone.

use crate::algorithms::{ALGORITHMS, Algorithm, by_name};
use crate::call::{Call, Collective, Layout};

/// Algorithms demanded by the user, by collective; the table decides for the others.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    forced: [Option<&'static Algorithm>; Collective::ALL.len()],
}

impl Choices {
    /// Demands an algorithm by name. `auto` takes a demand back.
    ///
    /// # Errors
    /// The names that are known, when this one is not.
    pub fn force(&mut self, collective: Collective, name: &str) -> Result<(), Vec<&'static str>> {
        let slot = &mut self.forced[collective as usize];
        if name == "auto" {
            *slot = None;
            return Ok(());
        }
        match by_name(collective, name) {
            Some(algorithm) => *slot = Some(algorithm),
            None => return Err(crate::algorithms::of(collective).map(|a| a.name).collect()),
        }
        Ok(())
    }
}

/// One line of the table: for calls of at most this many ranks and bytes, this algorithm.
struct Rule {
    collective: Collective,
    max_ranks: usize,
    max_bytes: usize,
    algorithm: &'static str,
}

/// Any number of ranks or bytes.
const ANY: usize = usize::MAX;

const fn rule(
    collective: Collective,
    max_ranks: usize,
    max_bytes: usize,
    algorithm: &'static str,
) -> Rule {
    Rule { collective, max_ranks, max_bytes, algorithm }
}

/// First match wins; an algorithm that can't do the call is passed over, and where no line is left, the first
/// algorithm of the collective that can do it is taken.
const RULES: &[Rule] = &[
    rule(Collective::Allreduce, ANY, ANY, "recursive_doubling"),
    rule(Collective::Barrier, ANY, ANY, "dissemination"),
];

/// The algorithm for `call` with elements of `element_bytes`; `None` when no algorithm can do it.
pub fn select(call: &Call, element_bytes: usize, choices: &Choices) -> Option<&'static Algorithm> {
    if let Some(forced) = choices.forced[call.collective as usize]
        && forced.can_do(call)
    {
        return Some(forced);
    }
    let bytes = payload_bytes(call, element_bytes);
    RULES
        .iter()
        .filter(|r| {
            r.collective == call.collective && call.size() <= r.max_ranks && bytes <= r.max_bytes
        })
        .filter_map(|r| by_name(call.collective, r.algorithm))
        .chain(ALGORITHMS.iter().copied())
        .find(|a| a.can_do(call))
}

/// The size that the table's `max_bytes` means: the vector for allreduce, bcast, reduce, scan, reduce_scatter and
/// exscan; one block for the block collectives; everything received for allgatherv. 0 where ranks don't agree on a
/// size (alltoallv, alltoallw, gatherv, scatterv, neighbours).
pub fn payload_bytes(call: &Call, element_bytes: usize) -> usize {
    let elements = match (&call.layout, call.collective) {
        (Layout::Uniform { count, .. }, _) => *count,
        (Layout::Blocks { recv, .. }, Collective::Allgatherv) => recv.iter().map(|b| b.len).sum(),
        (Layout::Blocks { send, .. }, Collective::ReduceScatter) => {
            send.iter().map(|b| b.len).sum()
        }
        _ => 0,
    };
    elements.saturating_mul(element_bytes)
}
