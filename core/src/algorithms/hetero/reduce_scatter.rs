//! Reduce-scatter by nodes: every node adds up what it has for a rank elsewhere at one of its ranks, which sends the sum there.
//!
//! - Steps: c rounds for c cells, in each the sums for the cell that far ahead are made and sent, and one from the cell that far
//!   behind is added.
//! - Bytes over the border of a node: the blocks of all ranks elsewhere, and c - 1 times its own ranks' blocks.
//! - Reduction order: own cell from this rank on, then the cells behind from the nearest on; each element is added up at one
//!   rank; commutative operations only.
//! - Limits: commutative operations; the topology must be known. Scratch: [`SLOTS`] rounds' arrivals, or less.
//! - Source: none; the direct exchange with one crossing a node.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! inside     c: 0<-1     d: 1<-0     a: 2<-3     b: 3<-2
//! round 1    a: 0<-2     b: 1<-3     c: 2<-0     d: 3<-1
//! inside     a: 0<-1     b: 1<-0     c: 2<-3     d: 3<-2
//! ```

use super::order::Cells;
use super::{hierarchy, known_and_commutative};
use crate::algorithms::patterns::span;
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Block, Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// Rounds whose arrivals have places of their own.
pub const SLOTS: usize = 4;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::ReduceScatter, Collective::ReduceScatterBlock],
    scope: Scope::Intra,
    summary: "each node's sums to their rank, through all cards; large vectors",
    supports: known_and_commutative,
    build,
};

/// One rank's view of the rounds.
struct Rounds<'a> {
    call: &'a Call,
    cells: Cells<'a>,
}

impl Rounds<'_> {
    /// Chunk `number` of a rank's block; empty beyond its end.
    fn chunk(&self, rank: Rank, number: usize) -> Block {
        let block = self.call.send_block(rank.index());
        let offset = number.saturating_mul(self.call.chunk).min(block.len);
        Block { start: block.start + offset, len: self.call.chunk.min(block.len - offset) }
    }

    /// Chunks of the longest block.
    fn chunks(&self) -> usize {
        let longest = (0..self.call.size()).map(|rank| self.call.send_block(rank).len).max();
        longest.unwrap_or(0).div_ceil(self.call.chunk)
    }

    /// Ranks of a cell whose sums this rank makes, when it is another one.
    fn dealt(&self, cell: usize) -> impl Iterator<Item = Rank> {
        let mine =
            move |to: &Rank| self.cells.proxy(self.cells.own(), to.index()) == self.call.group.rank;
        self.cells.ranks(cell).iter().copied().filter(mine)
    }

    /// Scratch elements of the largest round.
    fn need(&self) -> usize {
        let members = self.cells.ranks(self.cells.own()).len();
        let len = |rank: Rank| self.call.send_block(rank.index()).len.min(self.call.chunk);
        let sums = |cell| self.dealt(cell).map(|to| len(to) * members).sum::<usize>();
        let rounds = (0..self.cells.len()).filter(|&cell| cell != self.cells.own()).map(sums);
        let own = len(self.call.group.rank);
        (rounds.max().unwrap_or(0) + own).max(own * members)
    }
}

fn build(call: &Call) -> Schedule {
    let rounds = Rounds { call, cells: Cells::new(hierarchy(call).by_cell(), call.rank()) };
    let cells = rounds.cells;
    let mut b = Builder::new(call.in_place);
    let own = call.send_block(call.rank());
    // In place, the output still holds what other ranks wait for.
    let result = Span::new(Buffer::Output, 0, own.len);
    let total = if call.in_place { b.scratch(own.len) } else { result };
    let slots = SLOTS.min(rounds.chunks() * cells.len());
    let need = rounds.need();
    let mut arenas: Vec<super::stages::Arena> =
        (0..slots).map(|_| super::stages::Arena::new(&mut b, need)).collect();
    let mut round = 0;
    for number in 0..rounds.chunks() {
        let mine = rounds.chunk(call.group.rank, number);
        let sum = total.part(mine.start.min(own.start + own.len) - own.start, mine.len);
        let mut partial = span(Buffer::Input, mine);
        for distance in 1..=cells.len() {
            let arena = &mut arenas[round % slots];
            arena.clear();
            round += 1;
            let mut add = |b: &mut Builder, from: Rank, place: Span| {
                b.recv(from, place);
                b.reduce(partial, place, sum);
                partial = sum;
            };
            if distance == cells.len() {
                for mate in cells.mates() {
                    send_some(&mut b, mate, rounds.chunk(mate, number));
                }
                for mate in cells.mates().filter(|_| mine.len > 0) {
                    add(&mut b, mate, arena.take(mine.len));
                }
                continue;
            }
            let ahead = cells.ahead(distance);
            for &to in cells.ranks(ahead) {
                let proxy = cells.proxy(cells.own(), to.index());
                if proxy != call.group.rank {
                    send_some(&mut b, proxy, rounds.chunk(to, number));
                }
            }
            for to in rounds.dealt(ahead) {
                forward(&mut b, cells, to, rounds.chunk(to, number), arena);
            }
            if mine.len > 0 {
                let from = cells.proxy(cells.behind(distance), call.rank());
                add(&mut b, from, arena.take(mine.len));
            }
        }
        b.copy(partial, sum);
    }
    b.copy(total, result);
    b.finish()
}

fn send_some(b: &mut Builder, to: Rank, part: Block) {
    if part.len > 0 {
        b.send(to, span(Buffer::Input, part));
    }
}

/// Adds up the cell's contributions to `part`, and sends the sum to its rank.
fn forward(b: &mut Builder, cells: Cells, to: Rank, part: Block, arena: &mut super::stages::Arena) {
    if part.len == 0 {
        return;
    }
    let mut sum = span(Buffer::Input, part);
    for mate in cells.mates() {
        let place = arena.take(part.len);
        b.recv(mate, place);
        b.reduce(sum, place, place);
        sum = place;
    }
    b.send(to, sum);
}
