//! Reduce-scatter with the vendors' libraries: every group adds up each block at one of its ranks, which sends it to the block's.
//!
//! - Steps: for every block the library's reduce in each group, in chunks, and a message from each group that the block's rank is
//!   not in.
//! - Bytes over the border of a group: the blocks of all ranks elsewhere, through all its ranks: the least possible.
//! - Reduction order: each group's as its library has it; the groups from the one behind the rank's own to that, which is last; each
//!   element is added up at one rank; commutative operations only.
//! - Limits: commutative operations; a vendor's library in some group. Scratch: [`SLOTS`] chunks, two arrivals, and in place a block.
//! - Source: H. Kim et al., "HetCCL: Accelerating LLM Training with Heterogeneous GPUs", arXiv 2601.22585, 2026, for the phases.
//!
//! ```text
//! ranks      0 (A)        1 (A)        2 (B)        3 (B)
//! library    c: 0<-1      d: 1<-0      a: 2<-3      b: 3<-2
//! between    a: 0<-2      b: 1<-3      c: 2<-0      d: 3<-1
//! library    a: 0<-1      b: 1<-0      c: 2<-3      d: 3<-2
//! ```

use super::{hierarchy, inside, with_library_and_commutative};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};

/// Chunks of sums on their way to other groups.
const SLOTS: usize = 2;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero_library",
    collectives: &[Collective::ReduceScatter, Collective::ReduceScatterBlock],
    scope: Scope::Intra,
    summary: "the vendors' libraries inside their groups, each group's sums to their ranks; large vectors",
    supports: with_library_and_commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_library();
    let (rank, units) = (call.rank(), division.units.len());
    let seat = division.seats[rank];
    let (unit, index) = division.of(rank);
    let block = |rank: usize| span(Buffer::Input, call.send_block(rank));
    let longest = (0..call.size()).map(|rank| block(rank).len).max().unwrap_or(0).min(call.chunk);
    let mut b = Builder::new(call.in_place);
    let own = block(rank);
    // In place, the output still holds what other ranks wait for.
    let result = Span::new(Buffer::Output, 0, own.len);
    let total = if call.in_place { b.scratch(own.len) } else { result };
    let sums: Vec<Span> = (0..SLOTS).map(|_| b.scratch(longest)).collect();
    let by_messages = !unit.library && unit.ranks.len() > 1;
    let mates = [b.scratch(if by_messages { longest } else { 0 })];
    let arrival = b.scratch(own.len.min(longest));
    let mut dealt = 0;
    // In step s sums go to the group s ahead and come from the one s behind: both ends have them in the same order. A group's own
    // blocks come last, so that no arrival waits for a turn of the library.
    for step in 1..units {
        let (ahead, behind) = ((seat.unit + step) % units, (seat.unit + units - step) % units);
        for (place, &to) in division.units[ahead].ranks.iter().enumerate() {
            let (whole, border) = (block(to.index()), place % unit.ranks.len());
            for (offset, len) in chunks(whole.len, call.chunk) {
                let sum = sums[dealt % SLOTS].part(0, len);
                let chunk = whole.part(offset, len);
                inside::reduce(&mut b, (unit, index), border, chunk, sum, &mates);
                if index == border {
                    dealt += 1;
                    b.send(to, sum);
                }
            }
        }
        let sources = &division.units[behind].ranks;
        for (offset, len) in chunks(own.len, call.chunk) {
            let (sum, place) = (total.part(offset, len), arrival.part(0, len));
            let into = if step == 1 { sum } else { place };
            b.recv(sources[index % sources.len()], into);
            if step > 1 {
                b.reduce(sum, place, sum);
            }
        }
    }
    for (border, &to) in unit.ranks.iter().enumerate() {
        let whole = block(to.index());
        for (offset, len) in chunks(whole.len, call.chunk) {
            let (chunk, here) = (whole.part(offset, len), index == border);
            let alone = here && units == 1;
            let into = match here {
                true if alone => total.part(offset, len),
                true => arrival.part(0, len),
                false => chunk,
            };
            inside::reduce(&mut b, (unit, index), border, chunk, into, &mates);
            if here && !alone {
                let sum = total.part(offset, len);
                b.reduce(sum, into, sum);
            }
        }
    }
    b.copy(total, result);
    b.finish()
}
