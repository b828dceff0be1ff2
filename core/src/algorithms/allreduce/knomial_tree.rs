//! Allreduce as a reduce to rank 0 and a bcast, over 4-nomial trees.
//!
//! - Steps: 2 ceil(log4 p) levels of up to 3 children each.
//! - Bytes per rank: n sent and received once, but up to 3 ceil(log4 p) times at rank 0.
//! - Reduction order: that of the ranks; computed in one place, so all results are bitwise equal.
//! - Limits: none. Scratch: 3 n elements at most.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5, with a tree of radix 4.
//!
//! ```text
//! ranks    0                  1          2          3
//! reduce   0<-1 0<-2 0<-3
//! bcast    0->3 0->2 0->1
//! ```

use crate::algorithms::patterns::whole;
use crate::algorithms::pieces::{Rooted, tree_bcast, tree_reduce};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "knomial_tree",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "reduce and bcast over trees of radix 4; few messages per rank",
    supports: always,
    build,
};

const RADIX: usize = 4;

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(call.count());
    let tree = Rooted::new(call.rank(), call.size(), 0, RADIX);
    if let Some(sum) = tree_reduce(&mut b, &tree, input, Some(output)) {
        b.copy(sum, output);
    }
    tree_bcast(&mut b, &tree, output);
    b.finish()
}
