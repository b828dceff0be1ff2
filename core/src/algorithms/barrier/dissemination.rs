//! Barrier by dissemination.
//!
//! - Steps: ceil(log2 p) rounds; in round k rank r signals r + 2^k and waits for r - 2^k (mod p).
//! - Bytes: none; every message is empty.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", International
//!   Journal of Parallel Programming 17(1), 1988.
//!
//! ```text
//! ranks      0      1      2      3
//! round 0    0->1   1->2   2->3   3->0
//! round 1    0->2   1->3   2->0   3->1
//! ```

use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "dissemination",
    collectives: &[Collective::Barrier],
    scope: Scope::Intra,
    summary: "ceil(log2 p) rounds of empty messages",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(false);
    let nothing = Span::new(Buffer::Output, 0, 0);
    // A signal says that everybody heard of so far has come, so it waits for all that came before, not only the last.
    let mut arrived = Vec::new();
    let mut distance = 1;
    while distance < size {
        let send = b.send(Rank::from((rank + distance) % size), nothing);
        for &earlier in &arrived {
            b.after(earlier, send);
        }
        arrived.push(b.recv(Rank::from((rank + size - distance) % size), nothing));
        distance *= 2;
    }
    b.finish()
}
