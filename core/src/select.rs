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

    /// Whether a demanded algorithm needs to know the machine's groups.
    pub fn needs_groups(&self) -> bool {
        self.forced.iter().flatten().any(|algorithm| crate::cost::is_grouped(algorithm.name))
    }

    /// Whether an algorithm has been demanded for a collective.
    #[inline]
    pub fn is_forced(&self, collective: Collective) -> bool {
        self.forced[collective as usize].is_some()
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

/// Where the thresholds come from: the shapes (log p steps for small messages, least traffic for large ones, changes
/// between 2 and 512 KiB) are those of R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
/// Operations in MPICH", 2005; few ranks get the form with the fewest messages, as measured with 2 and 4 ranks on one
/// host (docs/benchmarks.md). They are not tuned to any one network.
///
/// First match wins; an algorithm that can't do the call is passed over, and where no line is left, the first
/// algorithm of the collective that can do it is taken.
const RULES: &[Rule] = &[
    rule(Collective::Allgather, 2, ANY, "linear"),
    rule(Collective::Allgather, ANY, 8 << 10, "recursive_doubling"),
    rule(Collective::Allgather, ANY, 2 << 10, "bruck"),
    rule(Collective::Allgather, ANY, 64 << 10, "neighbour_exchange"),
    rule(Collective::Allgather, ANY, ANY, "ring"),
    rule(Collective::Allgatherv, 8, 64 << 10, "linear"),
    rule(Collective::Allgatherv, ANY, 64 << 10, "bruck"),
    rule(Collective::Allgatherv, ANY, 512 << 10, "neighbour_exchange"),
    rule(Collective::Allgatherv, ANY, ANY, "ring"),
    rule(Collective::Allreduce, ANY, 8 << 10, "recursive_doubling"),
    rule(Collective::Allreduce, ANY, 256 << 10, "rabenseifner"),
    rule(Collective::Allreduce, ANY, ANY, "ring"),
    rule(Collective::Allreduce, ANY, ANY, "recursive_doubling"),
    rule(Collective::Alltoall, 7, ANY, "linear"),
    rule(Collective::Alltoall, ANY, 256, "bruck"),
    rule(Collective::Alltoall, ANY, 32 << 10, "linear"),
    rule(Collective::Alltoall, ANY, ANY, "pairwise"),
    rule(Collective::Alltoallv, ANY, ANY, "linear"),
    rule(Collective::Alltoallw, ANY, ANY, "linear"),
    rule(Collective::Barrier, ANY, ANY, "dissemination"),
    rule(Collective::Bcast, 2, ANY, "binomial"),
    rule(Collective::Bcast, ANY, 32 << 10, "binomial"),
    rule(Collective::Bcast, 8, ANY, "pipelined_chain"),
    rule(Collective::Bcast, ANY, ANY, "scatter_allgather"),
    rule(Collective::Exscan, 4, 64 << 10, "linear"),
    rule(Collective::Exscan, ANY, 64 << 10, "recursive_doubling"),
    rule(Collective::Exscan, ANY, ANY, "linear"),
    rule(Collective::Gather, 2, ANY, "linear"),
    rule(Collective::Gather, ANY, 4 << 10, "binomial"),
    rule(Collective::Gather, ANY, ANY, "linear"),
    rule(Collective::Reduce, ANY, 64 << 10, "binomial"),
    rule(Collective::Reduce, ANY, ANY, "rabenseifner"),
    rule(Collective::Reduce, ANY, ANY, "in_order"),
    rule(Collective::ReduceScatter, ANY, 512 << 10, "recursive_halving"),
    rule(Collective::ReduceScatter, ANY, ANY, "pairwise"),
    rule(Collective::ReduceScatter, ANY, ANY, "in_order"),
    rule(Collective::ReduceScatterBlock, ANY, 64 << 10, "recursive_halving"),
    rule(Collective::ReduceScatterBlock, ANY, ANY, "pairwise"),
    rule(Collective::ReduceScatterBlock, ANY, ANY, "in_order"),
    rule(Collective::Scan, 4, 64 << 10, "linear"),
    rule(Collective::Scan, ANY, 64 << 10, "recursive_doubling"),
    rule(Collective::Scan, ANY, ANY, "linear"),
    rule(Collective::Scatter, 2, ANY, "linear"),
    rule(Collective::Scatter, ANY, 4 << 10, "binomial"),
    rule(Collective::Scatter, ANY, ANY, "linear"),
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
