//! Reduce with the vendors' libraries: inside every group, then from a rank of each other group, in turn, to the root.
//!
//! - Steps per chunk: the library's reduce in each group, and a message from each other group to the root.
//! - Bytes over the border of a group: n out of each, through all its ranks in turn; n from each other group into the root.
//! - Reduction order: each group's as its library has it, at one rank; then the groups in order from the root's; commutative
//!   operations only.
//! - Limits: commutative operations; a vendor's library in some group. Scratch: up to 5 chunks.
//! - Source: H. Kim et al., "HetCCL: Accelerating LLM Training with Heterogeneous GPUs", arXiv 2601.22585, 2026, for the phases.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! library    0<-1                    2<-3
//! chunk 0    0<-2
//! library    0<-1                                3<-2
//! chunk 1    0<-3
//! ```

use super::{hierarchy, inside, with_library_and_commutative};
use crate::algorithms::patterns::{chunks, whole};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Schedule, Span};
use crate::types::Rank;

/// Chunks of a group's sums on their way to the root.
const SLOTS: usize = 3;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero_library",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "the vendors' libraries inside their groups, sums from all ranks in turn to the root; large vectors",
    supports: with_library_and_commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_library();
    let (rank, units) = (call.rank(), division.units.len());
    let (seat, root) = (division.seats[rank], division.seats[call.root_rank()]);
    let (unit, index) = division.of(rank);
    let (input, output) = whole(call.count());
    let longest = call.count().min(call.chunk);
    let mut b = Builder::new(call.in_place);
    let slots = SLOTS.min(call.count().div_ceil(longest.max(1)));
    let at_root = rank == call.root_rank();
    let sums: Vec<Span> =
        (0..if at_root { 0 } else { slots }).map(|_| b.scratch(longest)).collect();
    let places = [b.scratch(longest), b.scratch(longest)];
    for (number, (start, len)) in chunks(call.count(), call.chunk).enumerate() {
        let own = input.part(start, len);
        if seat.unit == root.unit {
            let into = if at_root { output.part(start, len) } else { own };
            inside::reduce(&mut b, (unit, index), root.index, own, into, &places);
            for step in (1..units).filter(|_| at_root) {
                let other = &division.units[(root.unit + step) % units].ranks;
                let place = places[step % places.len()].part(0, len);
                b.recv(other[number % other.len()], place);
                b.reduce(into, place, into);
            }
            continue;
        }
        let border = number % unit.ranks.len();
        let sum = sums[number % slots].part(0, len);
        inside::reduce(&mut b, (unit, index), border, own, sum, &places);
        if index == border {
            b.send(Rank::from(call.root_rank()), sum);
        }
    }
    b.finish()
}
