//! Allreduce by recursive doubling.
//!
//! - Steps: log2 p exchanges of the whole vector when p is a power of two; otherwise the first 2(p - p') ranks, p' the
//!   largest power of two below p, fold pairwise into one of each pair before, and hand the result back after.
//! - Bytes per rank: n log2 p sent and received (at most 2n more where p is no power of two).
//! - Reduction order: each exchange combines two neighbouring intervals of ranks, the lower one on the left, so every
//!   rank combines in rank order and all results are bitwise equal; good for non-commutative operations.
//! - Limits: none. Scratch: n elements, 2n for non-commutative operations.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 4.
//!
//! ```text
//! ranks      0          1          2          3
//! exchange   0 <-> 1               2 <-> 3
//!            01         01         23         23
//! exchange   0 <-> 2    1 <-> 3
//!            0123       0123       0123       0123
//! ```

use crate::algorithms::patterns::{Fold, whole};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "recursive_doubling",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "log2 p exchanges of the whole vector; small messages, any operation",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(call.count());
    let fold = Fold::new(call.rank(), call.size());
    let arrived = b.scratch(call.count());
    // Where the partial result is. The first combination writes Output, which saves a copy of the input.
    let mut sum = input;
    if let Some((peer, keeps)) = fold.partner() {
        if keeps {
            b.recv(peer, arrived);
            sum = combine(&mut b, sum, arrived, peer.index() < call.rank(), output);
        } else {
            b.send(peer, sum);
            b.recv(peer, output);
            return b.finish();
        }
    }
    for peer in fold.exchange_peers() {
        b.recv(peer, arrived);
        b.send(peer, sum);
        sum = combine(&mut b, sum, arrived, peer.index() < call.rank(), output);
    }
    b.copy(sum, output);
    if let Some((peer, true)) = fold.partner() {
        b.send(peer, output);
    }
    b.finish()
}

/// `output = sum op arrived` in rank order: `arrived` goes left when it comes from below.
fn combine(b: &mut Builder, sum: Span, arrived: Span, from_below: bool, output: Span) -> Span {
    debug_assert!(output.buffer == Buffer::Output);
    if from_below {
        b.reduce(arrived, sum, output);
    } else {
        b.reduce(sum, arrived, output);
    }
    output
}
