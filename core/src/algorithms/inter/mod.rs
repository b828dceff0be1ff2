//! The collectives of inter-communicators: two groups, each of which gets what the other one gives.
//!
//! The engine numbers the local group's ranks first, then the remote group's. One algorithm per collective, so there
//! is nothing to choose.

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod gather;
pub mod reduce;
pub mod reduce_scatter;
pub mod scatter;

use crate::algorithms::patterns::{crossing, span};
use crate::algorithms::pieces::{Exchange, Rooted};
use crate::call::{Call, Root};
use crate::schedule::{Buffer, Span};
use crate::types::Rank;

/// The first rank of the group speaks for it.
const LEADER: usize = 0;

/// A binomial tree over the local group below its leader.
fn local_tree(call: &Call) -> Rooted {
    Rooted::new(call.rank(), call.size(), LEADER, 2)
}

fn is_leader(call: &Call) -> bool {
    call.rank() == LEADER
}

/// The remote group's leader.
fn remote_leader(call: &Call) -> Rank {
    call.group.remote(LEADER)
}

/// The remote root, for the group that does not have it.
fn remote_root(call: &Call) -> Option<Rank> {
    match call.root {
        Root::Rank(rank) => Some(call.group.remote(rank.index())),
        Root::None | Root::Here | Root::Elsewhere => None,
    }
}

/// `outgoing(i)` to rank i of the remote group and its block from it, for all of them.
fn everybody(call: &Call, outgoing: impl Fn(usize) -> Span) -> Exchange {
    let mut exchange = Exchange::default();
    for (to, from) in crossing(call.rank(), call.size(), call.group.remote_len()) {
        let arriving =
            |peer| (call.group.remote(peer), span(Buffer::Output, call.recv_block(peer)));
        exchange.recvs.extend(from.map(arriving));
        exchange.sends.extend(to.map(|peer| (call.group.remote(peer), outgoing(peer))));
    }
    exchange
}
