//! Reduce by Rabenseifner's algorithm: recursive halving, then a gather to the root.
//!
//! - Steps: log2 p' exchanges of halves, p' the largest power of two up to p (where p is none, pairs of neighbours fold into one
//!   before), then one message from each active rank to the root.
//! - Bytes per rank: about n sent and received, 2 n more on folded pairs; the root receives about 2 n.
//! - Reduction order: pairs at growing distance of bits; commutative operations only.
//! - Limits: commutative operations. Scratch: 3 n elements at most.
//! - Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
//!
//! ```text
//! ranks, root 0   0                  1              2              3
//! halve           ab: 0<-2           ab: 1<-3       cd: 2<-0       cd: 3<-1
//! halve           a: 0<-1            b: 1<-0        c: 2<-3        d: 3<-2
//! gather          0<-1 0<-2 0<-3
//! ```

use crate::algorithms::patterns::{Fold, even_part};
use crate::algorithms::pieces::{Exchange, halve};
use crate::algorithms::{Algorithm, Scope, WINDOW, commutative};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "rabenseifner",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "halving, then a gather, little traffic; large vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, root, count) = (call.rank(), call.root_rank(), call.count());
    let fold = Fold::new(rank, call.size());
    let mut b = Builder::new(call.in_place && super::is_root(call));
    let (input, output) = super::buffers(call);
    if let Some((peer, false)) = fold.partner() {
        b.send(peer, input);
    } else {
        let sums = output.unwrap_or_else(|| b.scratch(count));
        let in_place = b.in_place();
        halve(&mut b, &fold, input, sums, in_place);
        let own = even_part(count, fold.active(), fold.number().unwrap_or(0));
        if rank != root {
            b.send(Rank::from(root), sums.part(own.start, own.len));
        }
    }
    if let Some(output) = output {
        let mut exchange = Exchange::default();
        for number in (0..fold.active()).filter(|&n| fold.rank_of(n).index() != root) {
            let part = even_part(count, fold.active(), number);
            exchange.recvs.push((fold.rank_of(number), output.part(part.start, part.len)));
        }
        exchange.build(&mut b, WINDOW);
    }
    b.finish()
}
