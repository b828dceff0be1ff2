//! Scatter and scatterv from a root in one group to all of the other.
//!
//! - Steps: a send at the root to each remote rank, a window of them at a time; one receive there.
//! - Bytes per rank: its own block received; the root sends all.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.6.
//!
//! ```text
//! groups A 0 1, B 0 1, root A1    A1->B0 A1->B1
//! ```

use super::remote_root;
use crate::algorithms::patterns::span;
use crate::algorithms::pieces::Exchange;
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::{Call, Collective, Root};
use crate::schedule::{Buffer, Schedule};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: &[Collective::Scatter, Collective::Scatterv],
    scope: Scope::Inter,
    summary: "the root sends to everybody of the other group",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    if call.root == Root::Here {
        let mut exchange = Exchange::default();
        for peer in 0..call.group.remote_len() {
            let from = span(Buffer::Input, call.send_block(peer));
            exchange.sends.push((call.group.remote(peer), from));
        }
        exchange.build(&mut b, WINDOW);
    } else if let Some(root) = remote_root(call) {
        b.recv(root, span(Buffer::Output, call.recv_block(0)));
    }
    b.finish()
}
