//! Reduce in stripes: a reduce-scatter inside every node, partial sums from node to node through all cards, and the root's node hands
//! the stripes to the root; in chunks.
//!
//! - Steps per chunk: the stages of the reduce-scatter in each cell, c - 1 from cell to cell, 1 to the root.
//! - Bytes over the border of a node: n each way; on a rank's own links less than 2 n.
//! - Reduction order: a cell's ranks, then the cells from the farthest to the root's; commutative operations only.
//! - Limits: commutative operations; the topology must be known. Scratch: about two vectors, at most [`WINDOW`] chunks' worth.
//! - Source: the way of R. van de Geijn, "On Global Combine Operations", Journal of Parallel and Distributed Computing 22(2), 1994,
//!   with a chain between the nodes.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! scatter    a: 0<-1     b: 1<-0     a: 2<-3     b: 3<-2
//! cells      a: 0<-2     b: 1<-3
//! root       b: 0<-1
//! ```

use super::{hierarchy, known_and_commutative, stages};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Block, Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// Chunks under way at a time.
pub const WINDOW: usize = 4;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "stripes over all cards, from node to node, in chunks; large vectors, fast links in nodes",
    supports: known_and_commutative,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_cell();
    let (rank, root, cells) = (call.rank(), call.root_rank(), division.units.len());
    let seat = division.seats[rank];
    let (unit, index) = division.of(rank);
    let distance = (seat.unit + cells - division.seats[root].unit) % cells;
    let neighbour = |step: usize| &division.units[(seat.unit + step) % cells];
    let mut b = Builder::new(call.in_place);
    let blocks: Vec<Block> =
        chunks(call.count(), call.chunk).map(|(start, len)| Block { start, len }).collect();
    let lengths = [blocks.first(), blocks.last()];
    // Arrivals of the stages, the sum of the stages, and arrivals from the next cell.
    let need = |&block: &Block| need(unit, index, block);
    let scratch = lengths.into_iter().flatten().map(need).max().unwrap_or(0);
    let slots = blocks.len().min(WINDOW);
    let mut arenas: Vec<stages::Arena> =
        (0..slots).map(|_| stages::Arena::new(&mut b, scratch)).collect();
    for (i, &whole) in blocks.iter().enumerate() {
        let arena = &mut arenas[i % slots];
        arena.clear();
        let (own, mut sum) = scatter(&mut b, (unit, index), whole, arena);
        if distance + 1 < cells {
            let (place, total) = (arena.take(own.len), arena.take(own.len));
            neighbour(1).owners(whole, own, &mut |peer, part| {
                b.recv(peer, place.part(part.start - own.start, part.len));
            });
            b.reduce(sum, place, total);
            sum = total;
        }
        if distance > 0 {
            neighbour(cells - 1).owners(whole, own, &mut |peer, part| {
                b.send(peer, sum.part(part.start - own.start, part.len));
            });
        } else if rank != root {
            if own.len > 0 {
                b.send(Rank::from(root), sum);
            }
        } else {
            b.copy(sum, span(Buffer::Output, own));
            for (other, &mate) in unit.ranks.iter().enumerate() {
                let part = unit.own(other, whole);
                if other != index && part.len > 0 {
                    b.recv(mate, span(Buffer::Output, part));
                }
            }
        }
    }
    b.finish()
}

/// The cell's reduce-scatter, all in scratch memory: ranks other than the root have no output. This rank's stripe and its sum.
fn scatter(
    b: &mut Builder,
    (unit, index): (&crate::topology::Unit, usize),
    whole: Block,
    arena: &mut stages::Arena,
) -> (Block, Span) {
    let members = unit.ranks.len();
    let own = unit.own(index, whole);
    let mut sum = span(Buffer::Input, own);
    let mut arrived = Vec::new();
    for step in 1..members {
        let (to, from) = ((index + step) % members, (index + members - step) % members);
        if own.len > 0 {
            let place = arena.take(own.len);
            b.recv(unit.ranks[from], place);
            arrived.push(place);
        }
        let part = unit.own(to, whole);
        if part.len > 0 {
            b.send(unit.ranks[to], span(Buffer::Input, part));
        }
    }
    for place in arrived {
        b.reduce(sum, place, place);
        sum = place;
    }
    (own, sum)
}

fn need(unit: &crate::topology::Unit, index: usize, whole: Block) -> usize {
    (unit.ranks.len() + 1) * unit.own(index, whole).len
}
