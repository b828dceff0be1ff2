//! Reduce_scatter by pairwise exchange.
//!
//! - Steps: p - 1; in step k rank r sends to r + k that one's block, gets its own from r - k and adds it.
//! - Bytes per rank: all blocks but one sent, its own received p - 1 times: the least possible.
//! - Reduction order: rank r adds r, r - 1, r - 2, ...; commutative operations only.
//! - Limits: commutative operations. Scratch: 2 blocks; in place 3.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.5.
//!
//! ```text
//! ranks    0        1        2        3
//! step 1   0->1     1->2     2->3     3->0
//! step 2   0->2     1->3     2->0     3->1
//! step 3   0->3     1->0     2->1     3->2
//! ```

use crate::algorithms::patterns::span;
use crate::algorithms::{Algorithm, Scope, commutative};
use crate::builder::Builder;
use crate::call::Call;
use crate::schedule::{Buffer, Schedule};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pairwise",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "p - 1 steps, one peer at a time, least traffic; large vectors",
    supports: commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let own = span(Buffer::Input, super::block(call, rank));
    let into = super::accumulator(&mut b, call);
    let places = [b.scratch(own.len), b.scratch(own.len)];
    let mut sum = own;
    for step in 1..size {
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        let arrived = places[step % 2];
        b.recv(Rank::from(from), arrived);
        b.send(Rank::from(to), span(Buffer::Input, super::block(call, to)));
        b.reduce(arrived, sum, into);
        sum = into;
    }
    b.copy(sum, super::result(call));
    b.finish()
}
