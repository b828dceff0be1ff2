//! Allgather and allgatherv, everybody to everybody.
//!
//! - Steps: p - 1 messages out and in, a window of them at a time; rank r begins with its neighbours.
//! - Bytes per rank: its own block p - 1 times sent, all other blocks received.
//! - Reduction order: none.
//! - Limits: none; blocks may differ. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.7.
//!
//! ```text
//! ranks    0                  1                  2                  3
//! sends    0->1 0->2 0->3     1->2 1->3 1->0     2->3 2->0 2->1     3->0 3->1 3->2
//! ```

use super::{output, own_block};
use crate::algorithms::pieces::Exchange;
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "everybody to everybody at once; few ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let own = own_block(&mut b, call);
    let mut exchange = Exchange::default();
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        exchange.recvs.push((Rank::from(from), output(call, from)));
        exchange.sends.push((Rank::from(to), own));
    }
    exchange.build(&mut b, WINDOW);
    b.finish()
}
