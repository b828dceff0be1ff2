//! Alltoall, alltoallv and alltoallw, everybody to everybody within a window.
//!
//! - Steps: p - 1 messages out and in, a window of them at a time, nearest ranks first.
//! - Bytes per rank: every block once.
//! - Reduction order: none.
//! - Limits: none. Scratch: none; in place, a copy of what is sent.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.8.
//!
//! ```text
//! ranks    0                  1                  2                  3
//! sends    0->1 0->2 0->3     1->2 1->3 1->0     2->3 2->0 2->1     3->0 3->1 3->2
//! ```

use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::call::Call;
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: super::ALL,
    scope: Scope::Intra,
    summary: "everybody to everybody, a window of messages at a time",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    super::direct(call, WINDOW)
}
