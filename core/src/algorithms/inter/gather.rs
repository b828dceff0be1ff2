//! Gather and gatherv from all of one group to a root in the other.
//!
//! - Steps: a receive at the root from each remote rank, a window of them at a time; one send there.
//! - Bytes per rank: its own block sent; the root receives all.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.5.
//!
//! ```text
//! groups A 0 1, B 0 1, root A1    A1<-B0 A1<-B1
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
    collectives: &[Collective::Gather, Collective::Gatherv],
    scope: Scope::Inter,
    summary: "everybody of the other group sends to the root",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    if call.root == Root::Here {
        let mut exchange = Exchange::default();
        for peer in 0..call.group.remote_len() {
            let into = span(Buffer::Output, call.recv_block(peer));
            exchange.recvs.push((call.group.remote(peer), into));
        }
        exchange.build(&mut b, WINDOW);
    } else if let Some(root) = remote_root(call) {
        b.send(root, span(Buffer::Input, call.send_block(0)));
    }
    b.finish()
}
