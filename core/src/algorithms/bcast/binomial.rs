//! Bcast down a binomial tree.
//!
//! - Steps: ceil(log2 p); the ranks that have the data double in each.
//! - Bytes per rank: n received once, sent to at most ceil(log2 p) children.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.2.
//!
//! ```text
//! ranks    0          1          2          3
//! step 0   0->2
//! step 1   0->1                  2->3
//! ```

use crate::algorithms::pieces::{Rooted, tree_bcast};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps down a tree; small messages",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let tree = Rooted::new(call.rank(), call.size(), call.root_rank(), 2);
    tree_bcast(&mut b, &tree, super::data(call));
    b.finish()
}
