//! Bcast in stripes: the root's node deals the vector out over its devices, the stripes go from node to node through all cards,
//! and every node puts them together; in chunks.
//!
//! - Steps per chunk: 1 to deal, c - 1 from cell to cell, and the stages of the allgather in each cell.
//! - Bytes over the border of a node: n each way; on a rank's own links less than 2 n.
//! - Reduction order: none.
//! - Limits: the topology must be known. Scratch: none.
//! - Source: R. van de Geijn, "On Global Combine Operations", Journal of Parallel and Distributed Computing 22(2), 1994, for dealing
//!   out and putting together.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! deal       b: 0->1
//! cells      a: 0->2     b: 1->3
//! gather     a: 0->1     b: 1->0     a: 2->3     b: 3->2
//! ```

use super::{hierarchy, known, stages};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Block, Call, Collective};
use crate::schedule::{Buffer, Schedule};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "stripes over all cards, from node to node, in chunks; large messages, fast links in nodes",
    supports: known,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_cell();
    let (rank, root, cells) = (call.rank(), call.root_rank(), division.units.len());
    let (unit, index) = division.of(rank);
    let distance = (division.seats[rank].unit + cells - division.seats[root].unit) % cells;
    let neighbour = |step: usize| &division.units[(division.seats[rank].unit + step) % cells];
    let buffer = if rank == root { Buffer::Input } else { Buffer::Output };
    let mut b = Builder::new(false);
    for (start, len) in chunks(call.count(), call.chunk) {
        let whole = Block { start, len };
        let own = unit.own(index, whole);
        if rank == root {
            for (other, &mate) in unit.ranks.iter().enumerate() {
                let part = unit.own(other, whole);
                if mate.index() != root && part.len > 0 {
                    b.send(mate, span(buffer, part));
                }
            }
        } else if distance == 0 && own.len > 0 {
            b.recv(Rank::from(root), span(buffer, own));
        }
        if distance > 0 {
            let behind = neighbour(cells - 1);
            behind.owners(whole, own, &mut |peer, part| {
                b.recv(peer, span(buffer, part));
            });
        }
        if distance + 1 < cells {
            neighbour(1).owners(whole, own, &mut |peer, part| {
                b.send(peer, span(buffer, part));
            });
        }
        spread(&mut b, call, whole, buffer);
    }
    b.finish()
}

/// The allgather of the stripes inside the cell. The root has everything, and only sends.
fn spread(b: &mut Builder, call: &Call, whole: Block, buffer: Buffer) {
    let division = hierarchy(call).by_cell();
    let (unit, index) = division.of(call.rank());
    let root = division.seats[call.root_rank()];
    if division.seats[call.rank()].unit != root.unit {
        stages::allgather(b, (unit, index), whole, buffer, &mut Vec::new());
        return;
    }
    // Here everybody sends its stripe to everybody: what the stages would send the root is left out.
    let own = unit.own(index, whole);
    let members = unit.ranks.len();
    for step in 1..members {
        let (to, from) = ((index + step) % members, (index + members - step) % members);
        let part = unit.own(from, whole);
        if index != root.index && part.len > 0 {
            b.recv(unit.ranks[from], span(buffer, part));
        }
        if to != root.index && own.len > 0 {
            b.send(unit.ranks[to], span(buffer, own));
        }
    }
}
