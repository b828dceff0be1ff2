//! Reduce_scatter around a ring.
//!
//! - Steps: p - 1; in step k rank r passes on the sum of the block of rank r - k - 1 and adds its own part to that of r - k - 2.
//! - Bytes per rank: all blocks but one sent and received: the least possible.
//! - Reduction order: block b adds ranks b + 1, b + 2, ..., b; commutative operations only.
//! - Limits: commutative operations. Scratch: 4 largest blocks at most.
//! - Source: P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", Journal of Parallel
//!   and Distributed Computing 69(2), 2009.
//!
//! ```text
//! ranks    0           1           2           3
//! step 0   3: 0->1     0: 1->2     1: 2->3     2: 3->0     blocks as they are
//! step 1   2: 0->1     3: 1->2     0: 2->3     1: 3->0     sums of two
//! step 2   1: 0->1     2: 1->2     3: 2->3     0: 3->0     sums of three
//! ```

use crate::algorithms::patterns::span;
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::Call;
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "p - 1 steps between neighbours, least traffic; large vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let own = |rank: usize| span(Buffer::Input, super::block(call, rank % size));
    let into = super::accumulator(&mut b, call);
    if size == 1 {
        b.copy(own(0), super::result(call));
        return b.finish();
    }
    let (left, right) = (Rank::from((rank + size - 1) % size), Rank::from((rank + 1) % size));
    let largest = (0..size).map(|rank| super::block(call, rank).len).max().unwrap_or(0);
    let (arrivals, sums) = (pair(&mut b, largest), pair(&mut b, largest));
    let mut passing = own(rank + size - 1);
    for step in 0..size - 1 {
        let mine = own(rank + 2 * size - step - 2);
        let last = step + 2 == size;
        let arrived = arrivals[step % 2].part(0, mine.len);
        let sum = if last { into } else { sums[step % 2].part(0, mine.len) };
        b.recv(left, arrived);
        b.send(right, passing);
        b.reduce(arrived, mine, sum);
        passing = sum;
    }
    b.copy(passing, super::result(call));
    b.finish()
}

/// Two places, so that one fills while the other is used.
fn pair(b: &mut Builder, len: usize) -> [Span; 2] {
    [b.scratch(len), b.scratch(len)]
}
