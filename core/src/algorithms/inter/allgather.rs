//! Allgather and allgatherv between two groups, everybody to everybody.
//!
//! - Steps: a message to and from each rank of the remote group, a window of them at a time.
//! - Bytes per rank: its own block sent once to each remote rank, all remote blocks received.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.7.
//!
//! ```text
//! groups A 0 1, B 0 1    A0->B0 A0->B1    A1->B0 A1->B1    B0->A0 B0->A1    B1->A0 B1->A1
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
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Inter,
    summary: "everybody to everybody of the other group",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let own = span(Buffer::Input, call.send_block(0));
    everybody(call, |_| own).build(&mut b, WINDOW);
    b.finish()
}
