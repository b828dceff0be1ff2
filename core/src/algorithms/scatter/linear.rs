//! Scatter and scatterv, the root to everybody.
//!
//! - Steps: p - 1 sends at the root, a window of them at a time; one receive elsewhere.
//! - Bytes per rank: its own block received; the root sends all others.
//! - Reduction order: none.
//! - Limits: none; blocks may differ, and only the root need know them. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.6.
//!
//! ```text
//! root 0   0->1 0->2 0->3
//! ```

use crate::algorithms::patterns::span;
use crate::algorithms::pieces::Exchange;
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: &[Collective::Scatter, Collective::Scatterv],
    scope: Scope::Intra,
    summary: "the root sends to everybody; large blocks, few ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root) = (call.rank(), call.size(), call.root_rank());
    // In place concerns the root's output, which it does not have: Input stays what it is.
    let mut b = Builder::new(false);
    if rank != root {
        b.recv(Rank::from(root), span(Buffer::Output, call.recv_block(0)));
        return b.finish();
    }
    let mut exchange = Exchange::default();
    for distance in 1..size {
        let peer = (root + distance) % size;
        exchange.sends.push((Rank::from(peer), span(Buffer::Input, call.send_block(peer))));
    }
    exchange.build(&mut b, WINDOW);
    if !call.in_place {
        let own = span(Buffer::Output, call.recv_block(0));
        b.copy(span(Buffer::Input, call.send_block(rank)), own);
    }
    b.finish()
}
