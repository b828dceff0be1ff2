//! Allgather with the vendors' libraries: inside every group, and every block once to a rank of each other group, which hands it on
//! there by the library.
//!
//! - Steps: the library's allgather where a group's blocks lie side by side, otherwise its bcast of every block; for every block of
//!   another group a message and the library's bcast, in chunks.
//! - Bytes over the border of a group: every block once to each other group, through all ranks: the least possible for two.
//! - Reduction order: none.
//! - Limits: a vendor's library in some group. Scratch: none.
//! - Source: H. Kim et al., "HetCCL: Accelerating LLM Training with Heterogeneous GPUs", arXiv 2601.22585, 2026, for the phases.
//!
//! ```text
//! ranks      0 (A)        1 (A)        2 (B)        3 (B)
//! library    a: 0->1      b: 1->0      c: 2->3      d: 3->2
//! between    c: 0<-2      d: 1<-3      a: 2<-0      b: 3<-1
//! library    c: 0->1      d: 1->0      a: 2->3      b: 3->2
//! ```

use super::{hierarchy, inside, with_library};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, GroupCollective, Schedule, Span};
use crate::topology::Unit;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero_library",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "the vendors' libraries inside their groups, every block once to each other group; large blocks",
    supports: with_library,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_library();
    let (rank, units) = (call.rank(), division.units.len());
    let seat = division.seats[rank];
    let (unit, index) = division.of(rank);
    let output = |rank: usize| span(Buffer::Output, call.recv_block(rank));
    let mut b = Builder::new(call.in_place);
    let place = output(rank);
    let own = if call.in_place { place } else { Span::new(Buffer::Input, 0, place.len) };
    // What is others' to wait for leaves first.
    for step in 1..units {
        let other = &division.units[(seat.unit + step) % units].ranks;
        for (offset, len) in chunks(own.len, call.chunk) {
            b.send(other[index % other.len()], own.part(offset, len));
        }
    }
    match side_by_side(call, unit) {
        Some(all) if unit.library => {
            b.group(GroupCollective::Allgather, 0, own, all);
        }
        _ => {
            b.copy(own, place);
            for (source, &from) in unit.ranks.iter().enumerate() {
                let block = output(from.index());
                for (offset, len) in chunks(block.len, call.chunk) {
                    inside::bcast(&mut b, (unit, index), source, block.part(offset, len));
                }
            }
        }
    }
    for step in 1..units {
        let sources = &division.units[(seat.unit + step) % units].ranks;
        for (source, &from) in sources.iter().enumerate() {
            let (border, block) = (source % unit.ranks.len(), output(from.index()));
            for (offset, len) in chunks(block.len, call.chunk) {
                let chunk = block.part(offset, len);
                if index == border {
                    b.recv(from, chunk);
                }
                inside::bcast(&mut b, (unit, index), border, chunk);
            }
        }
    }
    b.finish()
}

/// The unit's blocks as one span of Output, where they are equally long and follow each other.
fn side_by_side(call: &Call, unit: &Unit) -> Option<Span> {
    let first = call.recv_block(unit.ranks[0].index());
    let follows = |(i, rank): (usize, &crate::types::Rank)| {
        let block = call.recv_block(rank.index());
        block.len == first.len && block.start == first.start + i * first.len
    };
    let together = unit.ranks.iter().enumerate().all(follows);
    together.then(|| Span::new(Buffer::Output, first.start, unit.ranks.len() * first.len))
}
