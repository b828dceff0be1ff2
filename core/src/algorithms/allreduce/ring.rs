//! Allreduce around a ring: reduce-scatter, then allgather.
//!
//! - Steps: 2 (p - 1); blocks of one part in p travel around twice, first adding up, then spreading.
//! - Bytes per rank: 2 n (p - 1) / p sent and received: the least possible.
//! - Reduction order: block b adds ranks b, b + 1, ..., in one place each, so all results are bitwise equal; commutative
//!   operations only.
//! - Limits: commutative operations. Scratch: none; in place 2 blocks.
//! - Source: P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", Journal of Parallel
//!   and Distributed Computing 69(2), 2009.
//!
//! ```text
//! ranks      0           1           2           3
//! reduce     0: 0->1     1: 1->2     2: 2->3     3: 3->0
//! reduce     3: 0->1     0: 1->2     1: 2->3     2: 3->0
//! reduce     2: 0->1     3: 1->2     0: 2->3     1: 3->0
//! gather     1: 0->1     2: 1->2     3: 2->3     0: 3->0
//! gather     0: 0->1     1: 1->2     2: 2->3     3: 3->0
//! gather     3: 0->1     0: 1->2     1: 2->3     2: 3->0
//! ```

use crate::algorithms::patterns::{chunks, even_part, span};
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "2 (p - 1) steps between neighbours, least traffic; large vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let mut b = Builder::new(call.in_place);
    let block = |buffer, index: usize| span(buffer, even_part(count, size, index % size));
    if size == 1 {
        b.copy(block(Buffer::Input, 0), block(Buffer::Output, 0));
        return b.finish();
    }
    let (left, right) = (Rank::from((rank + size - 1) % size), Rank::from((rank + 1) % size));
    // In place, the contribution lies where an arriving sum would go.
    let longest = even_part(count, size, 0).len;
    let places = call.in_place.then(|| [b.scratch(longest), b.scratch(longest)]);
    let mut leaving = Buffer::Input;
    for step in 0..size - 1 {
        let (out, into) = (rank + size - step, rank + size - step - 1);
        let result = block(Buffer::Output, into);
        let (passing, mine) = (block(leaving, out), block(Buffer::Input, into));
        let arrived = places.map_or(result, |places| places[step % 2].part(0, mine.len));
        for (offset, len) in chunks(mine.len, call.chunk) {
            b.recv(left, arrived.part(offset, len));
        }
        for (offset, len) in chunks(passing.len, call.chunk) {
            b.send(right, passing.part(offset, len));
        }
        for (offset, len) in chunks(mine.len, call.chunk) {
            let part = |whole: Span| whole.part(offset, len);
            b.reduce(part(arrived), part(mine), part(result));
        }
        leaving = Buffer::Output;
    }
    for step in 0..size - 1 {
        let (out, into) = (rank + 1 + size - step, rank + size - step);
        let (passing, arriving) = (block(Buffer::Output, out), block(Buffer::Output, into));
        for (offset, len) in chunks(arriving.len, call.chunk) {
            b.recv(left, arriving.part(offset, len));
        }
        for (offset, len) in chunks(passing.len, call.chunk) {
            b.send(right, passing.part(offset, len));
        }
    }
    b.finish()
}
