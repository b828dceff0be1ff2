//! Alltoall, directly, near and far peers in turn: links inside nodes and cards are busy at the same time.
//!
//! - Steps: p - 1 messages to and from each rank, [`WINDOW`](crate::algorithms::WINDOW) at a time. Peers are taken by their distance in the
//!   order of the machine, one of the near half and one of the far half in turn, so every card gets from all others alike.
//! - Bytes per rank: what it has for the others, and what they have for it: the least possible.
//! - Reduction order: none.
//! - Limits: the topology must be known. Scratch: none; in place the input's length.
//! - Source: none; the direct exchange in another order.
//!
//! ```text
//! ranks      0 (A)        2 (A)        1 (B)        3 (B)
//! sends      0->2 0->1    2->1 2->3    1->3 1->0    3->0 3->2
//! sends      0->3         2->0         1->2         3->1
//! ```

use super::{hierarchy, known, order};
use crate::algorithms::pieces::Exchange;
use crate::algorithms::{Algorithm, Scope, WINDOW, alltoall};
use crate::builder::Builder;
use crate::call::Call;
use crate::schedule::{Buffer, Schedule};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: alltoall::ALL,
    scope: Scope::Intra,
    summary: "everybody to everybody, near and far peers in turn; nodes with several ranks",
    supports: known,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let blocks = alltoall::blocks_to_send(&mut b, call);
    let arriving =
        |peer: usize| crate::algorithms::patterns::span(Buffer::Output, call.recv_block(peer));
    b.copy(blocks[rank], arriving(rank));
    // The same order on all ranks: that of rank 0.
    let order = order::from(hierarchy(call).by_cell(), 0);
    let at = order.iter().position(|&peer| peer == call.group.rank).unwrap_or(0);
    let half = size.div_ceil(2);
    let distances = (1..=half).flat_map(|near| {
        let far = half + near;
        [Some(near).filter(|_| near < size), Some(far).filter(|_| far < size)]
    });
    let mut exchange = Exchange::default();
    for distance in distances.flatten() {
        let (to, from) = (order[(at + distance) % size], order[(at + size - distance) % size]);
        exchange.recvs.push((from, arriving(from.index())));
        exchange.sends.push((to, blocks[to.index()]));
    }
    exchange.build(&mut b, WINDOW);
    b.finish()
}
