//! Scan and exscan by recursive doubling.
//!
//! - Steps: ceil(log2 p) exchanges of the whole vector.
//! - Bytes per rank: n log2 p sent and received.
//! - Reduction order: that of the ranks.
//! - Limits: none. Scratch: 4 n elements at most.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5; D. Hillis, G. Steele, "Data Parallel Algorithms", Communications of the ACM 29(12), 1986.
//!
//! ```text
//! ranks      0          1          2          3
//! exchange   0 <-> 1               2 <-> 3
//! sum        01         01         23         23
//! result     0          01         2          23
//! exchange   0 <-> 2    1 <-> 3
//! result     0          01         012        0123
//! ```

use crate::algorithms::patterns::whole;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "recursive_doubling",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "ceil(log2 p) exchanges of the whole vector; small vectors, many ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let inclusive = call.collective == Collective::Scan;
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(count);
    // The sum of the ranks met so far, which is passed on, and of those among them that are below this one.
    let (mut sum, sums) = (input, b.scratch(count));
    let (mut below, belows): (Option<Span>, Span) = (None, b.scratch(count));
    let places = [b.scratch(count), b.scratch(count)];
    let (mut distance, mut round) = (1, 0);
    while distance < size {
        let peer = rank ^ distance;
        distance *= 2;
        if peer >= size {
            continue;
        }
        let arrived = places[round % 2];
        round += 1;
        b.recv(Rank::from(peer), arrived);
        b.send(Rank::from(peer), sum);
        let is_last = distance >= size;
        if peer < rank {
            match below {
                None => b.copy(arrived, belows),
                Some(lower) => b.reduce(arrived, lower, belows),
            };
            below = Some(belows);
            if !is_last {
                b.reduce(arrived, sum, sums);
                sum = sums;
            }
        } else if !is_last {
            b.reduce(sum, arrived, sums);
            sum = sums;
        }
    }
    match (inclusive, below) {
        (true, Some(lower)) => b.reduce(lower, input, output),
        (true, None) => b.copy(input, output),
        (false, Some(lower)) => b.copy(lower, output),
        (false, None) => None,
    };
    b.finish()
}
