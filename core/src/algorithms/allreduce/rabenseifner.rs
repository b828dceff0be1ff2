//! Allreduce by Rabenseifner's algorithm: recursive halving, then recursive doubling.
//!
//! - Steps: 2 log2 p', p' the largest power of two up to p; where p is none, pairs of neighbours fold into one before, and the
//!   result goes back after.
//! - Bytes per rank: 2 n (p' - 1) / p' sent and received, at most 2 n more on folded pairs.
//! - Reduction order: pairs at growing distance of bits, each element in one place, so all results are bitwise equal; commutative
//!   operations only.
//! - Limits: commutative operations. Scratch: n elements.
//! - Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
//!
//! ```text
//! ranks    0              1              2              3
//! halve    ab: 0<-2       ab: 1<-3       cd: 2<-0       cd: 3<-1
//! halve    a: 0<-1        b: 1<-0        c: 2<-3        d: 3<-2
//! double   ab: 0<->1      ab             cd: 2<->3      cd
//! double   abcd: 0<->2    1<->3          abcd           abcd
//! ```

use crate::algorithms::patterns::{Fold, even_range, whole};
use crate::algorithms::pieces::halve;
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "rabenseifner",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "halving and doubling in 2 log2 p steps, least traffic; middle and large vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let count = call.count();
    let fold = Fold::new(call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(count);
    let partner = fold.partner();
    if let Some((peer, false)) = partner {
        b.send(peer, input);
        b.recv(peer, output);
        return b.finish();
    }
    halve(&mut b, &fold, input, output, call.in_place);
    double(&mut b, &fold, count);
    if let Some((peer, true)) = partner {
        b.send(peer, output);
    }
    b.finish()
}

/// Everybody's part to everybody: the way of the halving, back.
fn double(b: &mut Builder, fold: &Fold, count: usize) {
    let (_, output) = whole(count);
    let number = fold.number().unwrap_or(0);
    let part = |from: usize, len: usize| {
        let block = even_range(count, fold.active(), from, from + len);
        output.part(block.start, block.len)
    };
    let mut have = 1;
    while have < fold.active() {
        let peer = number ^ have;
        b.recv(fold.rank_of(peer), part(peer / have * have, have));
        b.send(fold.rank_of(peer), part(number / have * have, have));
        have *= 2;
    }
}
