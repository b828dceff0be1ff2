//! Allreduce of small vectors by nodes: to one rank of each cell, recursive doubling between those, and back.
//!
//! - Steps: 2 inside nodes, log2 c exchanges between c cells (2 more where c is no power of two).
//! - Bytes per rank: n sent and received; n log2 c on the cells' first ranks, which receive n from each of their cell besides.
//! - Reduction order: the ranks of a cell in its order, then pairs of cells at growing distance, the lower one on the left, so
//!   all results are bitwise equal; commutative operations only.
//! - Limits: commutative operations; the topology must be known. Scratch: up to [`PLACES`] + 1 vectors.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", International
//!   Journal of High Performance Computing Applications 19(1), 2005, section 4, for the doubling.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! reduce     0<-1                    2<-3
//! exchange   0<->2                   2<->0
//! bcast      0->1                    2->3
//! ```

use super::order::Cells;
use super::{hierarchy, known_and_commutative};
use crate::algorithms::patterns::{Fold, whole};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Schedule, Span};

/// Vectors that have arrived and wait to be added up.
pub const PLACES: usize = 3;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero_latency",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "one rank of each node, log2 exchanges between nodes; small messages",
    supports: known_and_commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let cells = Cells::new(hierarchy(call).by_cell(), call.rank());
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(call.count());
    let leader = cells.ranks(cells.own())[0];
    if leader != call.group.rank {
        b.send(leader, input);
        b.recv(leader, output);
        return b.finish();
    }
    let mut sum = input;
    let mates: Vec<_> = cells.mates().collect();
    let places: Vec<Span> = (0..mates.len().min(PLACES)).map(|_| b.scratch(call.count())).collect();
    for (i, &mate) in mates.iter().enumerate() {
        let place = places[i % places.len()];
        b.recv(mate, place);
        b.reduce(sum, place, output);
        sum = output;
    }
    sum = between(&mut b, cells, sum, output);
    b.copy(sum, output);
    for mate in cells.mates() {
        b.send(mate, output);
    }
    b.finish()
}

/// Recursive doubling between the cells' first ranks. Where the result is.
fn between(b: &mut Builder, cells: Cells, mut sum: Span, output: Span) -> Span {
    if cells.len() == 1 {
        return sum;
    }
    let fold = Fold::new(cells.own(), cells.len());
    let leader = |cell: usize| cells.ranks(cell)[0];
    let place = b.scratch(sum.len);
    let combine = |b: &mut Builder, sum: Span, cell: usize| {
        b.recv(leader(cell), place);
        let (left, right) = if cell < cells.own() { (place, sum) } else { (sum, place) };
        b.reduce(left, right, output);
        output
    };
    let partner = fold.partner().map(|(cell, keeps)| (cell.index(), keeps));
    match partner {
        Some((cell, true)) => sum = combine(b, sum, cell),
        Some((cell, false)) => {
            b.send(leader(cell), sum);
            b.recv(leader(cell), output);
            return output;
        }
        None => {}
    }
    for peer in fold.exchange_peers() {
        b.send(leader(peer.index()), sum);
        sum = combine(b, sum, peer.index());
    }
    if let Some((cell, true)) = partner {
        b.send(leader(cell), sum);
    }
    sum
}
