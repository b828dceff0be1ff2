//! Reduce up a binomial tree.
//!
//! - Steps: ceil(log2 p); half of the ranks that are left hand over their sums in each.
//! - Bytes per rank: n sent once, received from at most ceil(log2 p) children.
//! - Reduction order: by distance from the root; commutative operations only.
//! - Limits: commutative operations. Scratch: 3 n elements at most.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5.
//!
//! ```text
//! ranks    0          1          2          3
//! step 0   0<-1                  2<-3
//!          01                    23
//! step 1   0<-2
//!          0123
//! ```

use crate::algorithms::pieces::{Rooted, tree_reduce};
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps up a tree; small messages",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(call.in_place && super::is_root(call));
    let (input, output) = super::buffers(call);
    let tree = Rooted::new(call.rank(), call.size(), call.root_rank(), 2);
    if let (Some(sum), Some(output)) = (tree_reduce(&mut b, &tree, input, output), output) {
        b.copy(sum, output);
    }
    b.finish()
}
