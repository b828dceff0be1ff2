//! Allgather by recursive doubling.
//!
//! - Steps: log2 p; in step k ranks exchange with rank xor 2^k all that they have, 2^k blocks.
//! - Bytes per rank: (p - 1) n sent and received: the least possible.
//! - Reduction order: none.
//! - Limits: p is a power of two, blocks are equal. Scratch: none.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.1.
//!
//! ```text
//! ranks    0          1          2          3
//! step 0   0 <-> 1               2 <-> 3
//! has      01         01         23         23
//! step 1   0 <-> 2    1 <-> 3
//! has      0123       0123       0123       0123
//! ```

use super::{own_block, uniform};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "recursive_doubling",
    collectives: &[Collective::Allgather],
    scope: Scope::Intra,
    summary: "log2 p exchanges of all that is there; small blocks, powers of two",
    supports: |call| call.size().is_power_of_two() && uniform(call),
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let mut b = Builder::new(call.in_place);
    let mut have = own_block(&mut b, call);
    let mut blocks = 1;
    while blocks < size {
        let peer = rank ^ blocks;
        let theirs = (peer / blocks) * blocks;
        b.recv(Rank::from(peer), Span::new(Buffer::Output, theirs * count, blocks * count));
        b.send(Rank::from(peer), have);
        blocks *= 2;
        have = Span::new(Buffer::Output, (rank / blocks) * blocks * count, blocks * count);
    }
    b.finish()
}
