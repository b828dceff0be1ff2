//! Allgather and allgatherv around a ring.
//!
//! - Steps: p - 1; in step k rank r passes on the block of rank r - k and gets that of r - k - 1.
//! - Bytes per rank: all blocks but one, sent and received: the least possible.
//! - Reduction order: none.
//! - Limits: none; blocks may differ. Scratch: none.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.1.
//!
//! ```text
//! ranks    0        1        2        3
//! step 0   0->1     1->2     2->3     3->0     everybody's own block
//! step 1   3->1     0->2     1->3     2->0     the block that came last
//! step 2   2->1     3->2     0->3     1->0
//! ```

use super::{output, own_block};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "p - 1 steps between neighbours, least traffic; large blocks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let (left, right) = (Rank::from((rank + size - 1) % size), Rank::from((rank + 1) % size));
    let mut passing = own_block(&mut b, call);
    for step in 1..size {
        let arriving = output(call, (rank + size - step) % size);
        b.recv(left, arriving);
        b.send(right, passing);
        passing = arriving;
    }
    b.finish()
}
