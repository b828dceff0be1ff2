//! The algorithms: one file each, all listed in [`ALGORITHMS`].
//!
//! An algorithm is a pure function from a [`Call`] to this rank's [`Schedule`]. All ranks of a communicator
//! run the same algorithm on calls that agree, and their schedules fit together: that is what the
//! [verifier](crate::verify) checks. A new algorithm is one file with a `pub const ALGORITHM` and one line in the
//! table below.

use std::fmt;

use crate::call::{Call, Collective};
use crate::schedule::Schedule;

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod gather;
pub mod hetero;
mod inter;
mod neighbor;
pub(crate) mod patterns;
pub(crate) mod pieces;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;

/// Which communicators an algorithm is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One group.
    Intra,
    /// Two groups (MPI inter-communicators).
    Inter,
}

/// An algorithm and when it can be used.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Its name in settings and reports, unique among the algorithms of a collective and scope.
    pub name: &'static str,
    /// The collectives it carries out.
    pub collectives: &'static [Collective],
    /// The communicators it is for.
    pub scope: Scope,
    /// One line for listings: steps, traffic, where it is good.
    pub summary: &'static str,
    /// Whether it can do this call; depends only on what all ranks agree on (size, count, `ordered`), so that
    /// all ranks get the same answer.
    pub supports: fn(&Call) -> bool,
    /// This rank's schedule; only for calls that it supports.
    pub build: fn(&Call) -> Schedule,
}

/// By name: function addresses differ from process to process, and ranks compare what they print.
impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.scope, self.name)
    }
}

impl Algorithm {
    /// Whether this is an algorithm for the call's collective and communicator that can do the call.
    pub fn can_do(&self, call: &Call) -> bool {
        let scope = if call.group.remote_size.is_some() { Scope::Inter } else { Scope::Intra };
        self.scope == scope && self.collectives.contains(&call.collective) && (self.supports)(call)
    }
}

/// Messages that algorithms with many independent peers keep under way in each direction.
pub(crate) const WINDOW: usize = 32;

/// For `supports`: every call.
pub(crate) fn always(_: &Call) -> bool {
    true
}

/// For `supports`: calls whose reduction may be done in any order.
pub(crate) fn commutative(call: &Call) -> bool {
    !call.ordered
}

/// Every algorithm.
pub const ALGORITHMS: &[&Algorithm] = &[
    &allgather::bruck::ALGORITHM,
    &allgather::linear::ALGORITHM,
    &allgather::neighbour_exchange::ALGORITHM,
    &allgather::recursive_doubling::ALGORITHM,
    &allgather::ring::ALGORITHM,
    &allreduce::knomial_tree::ALGORITHM,
    &allreduce::rabenseifner::ALGORITHM,
    &allreduce::recursive_doubling::ALGORITHM,
    &allreduce::ring::ALGORITHM,
    &alltoall::bruck::ALGORITHM,
    &alltoall::linear::ALGORITHM,
    &alltoall::pairwise::ALGORITHM,
    &barrier::dissemination::ALGORITHM,
    &bcast::binomial::ALGORITHM,
    &bcast::pipelined_chain::ALGORITHM,
    &bcast::scatter_allgather::ALGORITHM,
    &gather::binomial::ALGORITHM,
    &gather::linear::ALGORITHM,
    &neighbor::linear::ALGORITHM,
    &reduce::binomial::ALGORITHM,
    &reduce::in_order::ALGORITHM,
    &reduce::rabenseifner::ALGORITHM,
    &reduce_scatter::in_order::ALGORITHM,
    &reduce_scatter::pairwise::ALGORITHM,
    &reduce_scatter::recursive_halving::ALGORITHM,
    &reduce_scatter::ring::ALGORITHM,
    &scan::linear::ALGORITHM,
    &scan::recursive_doubling::ALGORITHM,
    &scatter::binomial::ALGORITHM,
    &scatter::linear::ALGORITHM,
    &hetero::allgather::ALGORITHM,
    &hetero::allreduce::ALGORITHM,
    &hetero::allreduce::CELLS,
    &hetero::allreduce::LIBRARY,
    &hetero::allreduce_latency::ALGORITHM,
    &hetero::alltoall::ALGORITHM,
    &hetero::barrier::ALGORITHM,
    &hetero::bcast::ALGORITHM,
    &hetero::chain::BCAST,
    &hetero::chain::REDUCE,
    &hetero::gather::ALGORITHM,
    &hetero::library_allgather::ALGORITHM,
    &hetero::library_bcast::ALGORITHM,
    &hetero::library_reduce::ALGORITHM,
    &hetero::library_reduce_scatter::ALGORITHM,
    &hetero::reduce::ALGORITHM,
    &hetero::reduce_scatter::ALGORITHM,
    &hetero::scatter::ALGORITHM,
    &inter::allgather::ALGORITHM,
    &inter::allreduce::ALGORITHM,
    &inter::alltoall::ALGORITHM,
    &inter::barrier::ALGORITHM,
    &inter::bcast::ALGORITHM,
    &inter::gather::ALGORITHM,
    &inter::reduce::ALGORITHM,
    &inter::reduce_scatter::ALGORITHM,
    &inter::scatter::ALGORITHM,
];

/// The algorithm of `collective` with this name, for intra-communicators.
pub fn by_name(collective: Collective, name: &str) -> Option<&'static Algorithm> {
    of(collective).find(|a| a.name == name && a.scope == Scope::Intra)
}

/// The algorithms of `collective`.
pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().copied().filter(move |a| a.collectives.contains(&collective))
}
