//! Alltoall by Bruck's algorithm.
//!
//! - Steps: ceil(log2 p); in step k rank r sends all blocks whose distance has bit k set to r + 2^k.
//! - Bytes per rank: about (p / 2) n log2 p sent and received, and as much copied; few messages, more bytes.
//! - Reduction order: none.
//! - Limits: blocks are equal. Scratch: 2 p n elements at most; block j of the first holds what still has to go j ranks
//!   on.
//! - Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications
//!   in Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.
//!
//! ```text
//! ranks          0             1             2             3
//! distances      0 1 2 3       0 1 2 3       0 1 2 3       0 1 2 3
//! bit 0 (1, 3)   0->1          1->2          2->3          3->0
//! bit 1 (2, 3)   0->2          1->3          2->0          3->1
//! ```

use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective, Layout};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collectives: &[Collective::Alltoall],
    scope: Scope::Intra,
    summary: "ceil(log2 p) messages that carry many blocks; small blocks, many ranks",
    supports: |call| matches!(call.layout, Layout::Uniform { .. }),
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let mut b = Builder::new(call.in_place);
    let traveling = b.scratch(size * count);
    let block = |j: usize| traveling.part(j * count, count);
    let place = |buffer, peer: usize| Span::new(buffer, peer % size * count, count);
    for distance in 0..size {
        b.copy(place(Buffer::Input, rank + distance), block(distance));
    }
    let packed_blocks = size.next_power_of_two() / 2;
    let (out, arrived) = (b.scratch(packed_blocks * count), b.scratch(packed_blocks * count));
    let mut hop = 1;
    while hop < size {
        let moving: Vec<usize> = (1..size).filter(|distance| distance & hop != 0).collect();
        for (i, &distance) in moving.iter().enumerate() {
            b.copy(block(distance), out.part(i * count, count));
        }
        let len = moving.len() * count;
        b.recv(Rank::from((rank + size - hop) % size), arrived.part(0, len));
        b.send(Rank::from((rank + hop) % size), out.part(0, len));
        for (i, &distance) in moving.iter().enumerate() {
            b.copy(arrived.part(i * count, count), block(distance));
        }
        hop *= 2;
    }
    for distance in 0..size {
        b.copy(block(distance), place(Buffer::Output, rank + size - distance));
    }
    b.finish()
}
