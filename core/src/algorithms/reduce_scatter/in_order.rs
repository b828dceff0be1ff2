//! Reduce_scatter in the order of the ranks.
//!
//! - Steps: ceil(log2 p) up a binomial tree to rank 0, then one send from there to each rank.
//! - Bytes per rank: the whole vector sent once; rank 0 receives ceil(log2 p) of them and sends one.
//! - Reduction order: that of the ranks.
//! - Limits: none. Scratch: 3 vectors at most.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5.
//!
//! ```text
//! ranks    0                  1          2          3
//! step 0   0<-1                          2<-3
//! step 1   0<-2
//! step 2   0->1 0->2 0->3
//! ```

use crate::algorithms::pieces::{Exchange, Rooted, tree_reduce};
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::Call;
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "in_order",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "a tree that combines in rank order, then a scatter; operations that do not commute",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, total) = (call.rank(), call.size(), super::total(call));
    let mut b = Builder::new(call.in_place);
    let tree = Rooted::new(rank, size, 0, 2);
    let input = Span::new(Buffer::Input, 0, total);
    let result = super::result(call);
    match tree_reduce(&mut b, &tree, input, None) {
        None => {
            b.recv(Rank(0), result);
        }
        Some(sum) => {
            let part = |rank: usize| {
                let block = super::block(call, rank);
                sum.part(block.start, block.len)
            };
            let sends = (1..size).map(|peer| (Rank::from(peer), part(peer))).collect();
            Exchange { sends, recvs: Vec::new() }.build(&mut b, WINDOW);
            b.copy(part(0), result);
        }
    }
    b.finish()
}
