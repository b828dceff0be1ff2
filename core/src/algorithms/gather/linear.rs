//! Gather and gatherv, everybody to the root.
//!
//! - Steps: p - 1 receives at the root, a window of them at a time; one send elsewhere.
//! - Bytes per rank: its own block sent; the root receives all others.
//! - Reduction order: none.
//! - Limits: none; blocks may differ, and only the root need know them. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.5.
//!
//! ```text
//! root 0   0<-1 0<-2 0<-3
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
    collectives: &[Collective::Gather, Collective::Gatherv],
    scope: Scope::Intra,
    summary: "everybody sends to the root; large blocks, few ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root) = (call.rank(), call.size(), call.root_rank());
    let mut b = Builder::new(call.in_place);
    if rank != root {
        b.send(Rank::from(root), span(Buffer::Input, call.send_block(0)));
        return b.finish();
    }
    if !call.in_place {
        let own = span(Buffer::Output, call.recv_block(rank));
        b.copy(span(Buffer::Input, call.send_block(0)), own);
    }
    let mut exchange = Exchange::default();
    for distance in 1..size {
        let peer = (root + distance) % size;
        exchange.recvs.push((Rank::from(peer), span(Buffer::Output, call.recv_block(peer))));
    }
    exchange.build(&mut b, WINDOW);
    b.finish()
}
