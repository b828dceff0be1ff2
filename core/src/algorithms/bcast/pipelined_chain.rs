//! Bcast along a chain, in chunks.
//!
//! - Steps: p - 1 + m - 1 for m chunks; every rank passes a chunk on while it receives the next.
//! - Bytes per rank: n received and n sent, but by the last.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: J. L. Träff, A. Ripke, C. Siebert, P. Balaji, R. Thakur, W. Gropp, "A Pipelined Algorithm for Large, Irregular
//!   All-Gather Problems", International Journal of High Performance Computing Applications 24(1), 2010, section 2.
//!
//! ```text
//! ranks    0         1         2         3
//! step 0   a: 0->1
//! step 1   b: 0->1   a: 1->2
//! step 2   c: 0->1   b: 1->2   a: 2->3
//! ```

use crate::algorithms::patterns::chunks;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pipelined_chain",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "chunks from rank to rank; large messages, few ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root) = (call.rank(), call.size(), call.root_rank());
    let node = (rank + size - root) % size;
    let data = super::data(call);
    let mut b = Builder::new(false);
    for (offset, len) in chunks(data.len, call.chunk) {
        let chunk = data.part(offset, len);
        if node > 0 {
            b.recv(Rank::from((rank + size - 1) % size), chunk);
        }
        if node + 1 < size {
            b.send(Rank::from((rank + 1) % size), chunk);
        }
    }
    b.finish()
}
