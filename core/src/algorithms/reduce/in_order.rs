//! Reduce in the order of the ranks.
//!
//! - Steps: ceil(log2 p) up a binomial tree to rank 0, and one to the root where that is another rank.
//! - Bytes per rank: n sent once, received from at most ceil(log2 p) children.
//! - Reduction order: that of the ranks, whatever the root.
//! - Limits: none. Scratch: 3 n elements at most.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5.
//!
//! ```text
//! ranks, root 2   0          1          2          3
//! step 0          0<-1                  2<-3
//!                 01                    23
//! step 1          0<-2
//!                 0123
//! step 2          0->2
//! ```

use crate::algorithms::pieces::{Rooted, tree_reduce};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "in_order",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "a tree that combines in rank order; operations that do not commute",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(call.in_place && super::is_root(call));
    let (input, output) = super::buffers(call);
    let root = call.root_rank();
    let tree = Rooted::new(call.rank(), call.size(), 0, 2);
    // The root, when it is not rank 0, keeps its output free until the result comes.
    let sum = tree_reduce(&mut b, &tree, input, output.filter(|_| root == 0));
    match (sum, output) {
        (Some(sum), Some(output)) => {
            b.copy(sum, output);
        }
        (Some(sum), None) => {
            b.send(Rank::from(root), sum);
        }
        (None, Some(output)) => {
            b.recv(Rank(0), output);
        }
        (None, None) => {}
    }
    b.finish()
}
