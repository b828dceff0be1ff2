//! Allgather by Bruck's algorithm.
//!
//! - Steps: ceil(log2 p); in step k rank r sends the first 2^k blocks that it has to r - 2^k and gets as many from
//!   r + 2^k (fewer in the last step).
//! - Bytes per rank: (p - 1) n sent and received, and p n copied at the end.
//! - Reduction order: none.
//! - Limits: blocks are equal. Scratch: p n elements, in which block j is that of rank r + j.
//! - Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications
//!   in Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.
//!
//! ```text
//! ranks    0          1          2          3
//! has      0          1          2          3
//! step 0   01         12         23         30
//! step 1   0123       1230       2301       3012
//! rotate   0123       0123       0123       0123
//! ```

use super::uniform;
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collectives: &[Collective::Allgather],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps and a rotation; small blocks, any number of ranks",
    supports: uniform,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let mut b = Builder::new(call.in_place);
    let turned = b.scratch(size * count);
    let own = if call.in_place {
        Span::new(Buffer::Output, rank * count, count)
    } else {
        Span::new(Buffer::Input, 0, count)
    };
    b.copy(own, turned.part(0, count));
    let mut have = 1;
    while have < size {
        let blocks = have.min(size - have);
        let (to, from) = ((rank + size - have) % size, (rank + have) % size);
        b.recv(Rank::from(from), turned.part(have * count, blocks * count));
        b.send(Rank::from(to), turned.part(0, blocks * count));
        have += blocks;
    }
    let before_end = size - rank;
    let output = Span::new(Buffer::Output, 0, size * count);
    b.copy(turned.part(0, before_end * count), output.part(rank * count, before_end * count));
    b.copy(turned.part(before_end * count, rank * count), output.part(0, rank * count));
    b.finish()
}
