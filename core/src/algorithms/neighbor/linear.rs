//! The neighbourhood collectives, every neighbour at once.
//!
//! - Steps: all receives, one per source, and a send per destination, a window of sends at a time; a rank that is its
//!   own neighbour copies.
//! - Bytes per rank: every block once.
//! - Reduction order: none.
//! - Limits: none; neighbours may repeat, in which case the n-th block sent to a rank is the n-th one received there. On
//!   a cartesian grid, what is sent to the minus neighbour is what that one receives from its plus neighbour, also where
//!   both are the same rank. Scratch: none.
//! - Source: T. Hoefler, J. L. Träff, "Sparse Collective Operations for MPI", IPDPS 2009; the order of equal neighbours:
//!   MPI: A Message-Passing Interface Standard, version 3.1, section 7.6.
//!
//! ```text
//! ring of 4      0          1          2          3
//! minus, plus    3, 1       0, 2       1, 3       2, 0
//! sends          0->3 0->1  1->0 1->2  2->1 2->3  3->2 3->0
//! ```

use std::collections::VecDeque;

use crate::algorithms::patterns::span;
use crate::algorithms::pieces::Exchange;
use crate::algorithms::{Algorithm, Scope, WINDOW};
use crate::builder::Builder;
use crate::call::{Call, Collective, Neighbours};
use crate::schedule::{Buffer, Schedule, Span};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: &[
        Collective::NeighborAllgather,
        Collective::NeighborAllgatherv,
        Collective::NeighborAlltoall,
        Collective::NeighborAlltoallv,
        Collective::NeighborAlltoallw,
    ],
    scope: Scope::Intra,
    summary: "every neighbour at once, a window of sends at a time",
    supports: |call| call.neighbours.is_some(),
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let Some(neighbours) = &call.neighbours else { return b.finish() };
    let own = call.group.rank;
    let mut sends = Vec::new();
    let mut to_self = VecDeque::new();
    for index in sending_order(neighbours) {
        match neighbours.destinations[index] {
            Some(peer) if peer == own => to_self.push_back(outgoing(call, index)),
            Some(peer) => sends.push((peer, outgoing(call, index))),
            None => {}
        }
    }
    for (index, source) in neighbours.sources.iter().enumerate() {
        let into = span(Buffer::Output, call.recv_block(index));
        match *source {
            Some(peer) if peer == own => {
                if let Some(from) = to_self.pop_front() {
                    b.copy(from, into);
                }
            }
            // No window of receives: neighbours come in any order, so what fills it might never be sent.
            Some(peer) => {
                b.recv(peer, into);
            }
            None => {}
        }
    }
    Exchange { sends, recvs: Vec::new() }.build(&mut b, WINDOW);
    b.finish()
}

/// The order in which blocks are sent so that the n-th to a rank is the n-th it receives.
fn sending_order(neighbours: &Neighbours) -> impl Iterator<Item = usize> + use<> {
    let pairs_swapped = neighbours.cartesian;
    (0..neighbours.destinations.len()).map(move |i| if pairs_swapped { i ^ 1 } else { i })
}

/// What goes to destination `index`: the same block to all for the allgather forms.
fn outgoing(call: &Call, index: usize) -> Span {
    let block = match call.collective {
        Collective::NeighborAllgather | Collective::NeighborAllgatherv => call.send_block(0),
        _ => call.send_block(index),
    };
    span(Buffer::Input, block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Rank;

    #[test]
    fn a_grid_sends_to_plus_before_minus() {
        let neighbours = Neighbours {
            sources: [Some(Rank(1)); 2].into(),
            destinations: [Some(Rank(1)); 2].into(),
            cartesian: true,
        };
        assert_eq!(sending_order(&neighbours).collect::<Vec<_>>(), [1, 0]);
    }
}
