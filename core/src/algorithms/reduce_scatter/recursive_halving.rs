//! Reduce_scatter by recursive halving.
//!
//! - Steps: log2 p' exchanges of halves, p' the largest power of two up to p; where p is none, pairs of neighbours fold into one
//!   before, and the result goes back after.
//! - Bytes per rank: (1 - 1/p') of the vector sent and received, two vectors more on folded pairs.
//! - Reduction order: pairs at growing distance of bits; commutative operations only.
//! - Limits: commutative operations. Scratch: 2 vectors.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5.
//!
//! ```text
//! ranks    0              1              2              3
//! step 0   01: 0<-2       01: 1<-3       23: 2<-0       23: 3<-1
//! step 1   0: 0<-1        1: 1<-0        2: 2<-3        3: 3<-2
//! ```

use crate::algorithms::patterns::Fold;
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::{Block, Call};
use crate::schedule::{Buffer, Schedule, Span};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "recursive_halving",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "log2 p exchanges of halves; small and middle vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, total) = (call.rank(), super::total(call));
    let fold = Fold::new(rank, call.size());
    let mut b = Builder::new(call.in_place);
    let input = Span::new(Buffer::Input, 0, total);
    let result = super::result(call);
    let partner = fold.partner();
    if let Some((peer, false)) = partner {
        b.send(peer, input);
        b.recv(peer, result);
        return b.finish();
    }
    let (arrivals, sums) = (b.scratch(total), b.scratch(total));
    let mut sum = input;
    if let Some((peer, true)) = partner {
        b.recv(peer, arrivals);
        b.reduce(arrivals, sum, sums);
        sum = sums;
    }
    let number = fold.number().unwrap_or(0);
    let (mut low, mut high) = (0, fold.active());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let keeps_low = number < middle;
        let peer = number ^ ((high - low) / 2);
        let (kept, given) = if keeps_low {
            ((low, middle), (middle, high))
        } else {
            ((middle, high), (low, middle))
        };
        let part = |whole: Span, (from, to)| {
            let block = of_active(call, &fold, from, to);
            whole.part(block.start, block.len)
        };
        b.recv(fold.rank_of(peer), part(arrivals, kept));
        b.send(fold.rank_of(peer), part(sum, given));
        b.reduce(part(arrivals, kept), part(sum, kept), part(sums, kept));
        sum = sums;
        (low, high) = kept;
    }
    let own = super::block(call, rank);
    if let Some((peer, true)) = partner {
        let theirs = super::block(call, peer.index());
        b.send(peer, sum.part(theirs.start, theirs.len));
    }
    b.copy(sum.part(own.start, own.len), result);
    b.finish()
}

/// The blocks of active ranks `from..to`; a folded pair has both of its blocks.
fn of_active(call: &Call, fold: &Fold, from: usize, to: usize) -> Block {
    let first = fold.first_of(from);
    let end = if to < fold.active() { fold.first_of(to) } else { call.size() };
    super::range(call, first, end)
}
