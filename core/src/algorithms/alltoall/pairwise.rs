//! Alltoall, alltoallv and alltoallw by pairwise exchange.
//!
//! - Steps: p - 1, one after the other; in step k rank r sends to r + k and receives from r - k.
//! - Bytes per rank: every block once.
//! - Reduction order: none.
//! - Limits: none. Scratch: none; in place, a copy of what is sent.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.4.
//!
//! ```text
//! ranks    0        1        2        3
//! step 1   0->1     1->2     2->3     3->0
//! step 2   0->2     1->3     2->0     3->1
//! step 3   0->3     1->0     2->1     3->2
//! ```

use crate::algorithms::{Algorithm, Scope, always};
use crate::call::Call;
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pairwise",
    collectives: super::ALL,
    scope: Scope::Intra,
    summary: "p - 1 steps, one peer at a time; large blocks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    super::direct(call, 1)
}
