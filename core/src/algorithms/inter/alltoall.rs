//! Alltoall, alltoallv and alltoallw between two groups, everybody to everybody.
//!
//! - Steps: a message to and from each rank of the remote group, a window of them at a time.
//! - Bytes per rank: every block once.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.8.
//!
//! ```text
//! groups A 0 1, B 0 1    A0->B0 A0->B1    A1->B1 A1->B0    B0->A0 B0->A1    B1->A1 B1->A0
//! ```

use super::everybody;
use crate::algorithms::patterns::span;
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: &[Collective::Alltoall, Collective::Alltoallv, Collective::Alltoallw],
    scope: Scope::Inter,
    summary: "everybody to everybody of the other group",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    everybody(call, |peer| span(Buffer::Input, call.send_block(peer))).build(&mut b, WINDOW);
    b.finish()
}
