//! Algorithms for machines whose ranks are unlike: vendor groups, nodes with several cards, borders of different rates.
//!
//! All of them need [`Call::topology`]. They move data over the links between nodes no more often than must be, through all
//! cards of a node at once, and use the links inside of nodes for the rest.

pub mod allgather;
pub mod allreduce;
pub mod allreduce_latency;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod chain;
pub mod gather;
mod inside;
pub mod library_allgather;
pub mod library_bcast;
pub mod library_reduce;
pub mod library_reduce_scatter;
mod order;
pub mod reduce;
pub mod reduce_scatter;
pub mod scatter;
pub mod stages;

use std::sync::Arc;

use crate::call::Call;
use crate::topology::Hierarchy;

/// For `supports`: the machine is known.
fn known(call: &Call) -> bool {
    call.topology.is_some()
}

/// For `supports`: the machine is known, and the reduction may be done in any order.
fn known_and_commutative(call: &Call) -> bool {
    known(call) && !call.ordered
}

/// For `supports`: a vendor's library can work inside some group.
fn with_library(call: &Call) -> bool {
    call.topology.as_ref().is_some_and(|hierarchy| !hierarchy.library_groups().is_empty())
}

/// For `supports`: the same, and the reduction may be done in any order.
fn with_library_and_commutative(call: &Call) -> bool {
    with_library(call) && !call.ordered
}

/// The machine; algorithms are built for calls that they support.
///
/// # Panics
/// When the call has none.
fn hierarchy(call: &Call) -> &Arc<Hierarchy> {
    call.topology.as_ref().expect("supported calls have a topology")
}
