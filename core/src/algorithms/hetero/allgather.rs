//! Allgather by nodes: every block goes to each other node once, to one of its ranks, which hands it to the rest there.
//!
//! - Steps: c - 1 rounds for c cells, in each a block from the cell that far behind, and its copies inside.
//! - Bytes over the border of a node: what its ranks send to c - 1 cells, and what all others have: the least possible.
//! - Reduction order: none.
//! - Limits: the topology must be known. Scratch: none.
//! - Source: none; the direct exchange with one crossing a node.
//!
//! ```text
//! ranks      0 (A)        1 (A)        2 (B)        3 (B)
//! inside     a: 0->1      b: 1->0      c: 2->3      d: 3->2
//! round 1    a: 0->2      b: 1->3      c: 2->0      d: 3->1
//! inside     c: 0->1      d: 1->0      a: 2->3      b: 3->2
//! ```

use super::order::Cells;
use super::{hierarchy, known};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span, StepId};

/// Rounds under way at a time.
const WINDOW: usize = 8;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "every block to each node once, through all cards; large blocks",
    supports: known,
    build,
};

fn build(call: &Call) -> Schedule {
    let cells = Cells::new(hierarchy(call).by_cell(), call.rank());
    let output = |rank: usize| span(Buffer::Output, call.recv_block(rank));
    let mut b = Builder::new(call.in_place);
    let place = output(call.rank());
    let own = if call.in_place { place } else { Span::new(Buffer::Input, 0, place.len) };
    let mut ends: Vec<StepId> = Vec::new();
    for distance in 1..=cells.len() {
        let earlier = ends.len().checked_sub(WINDOW).map(|i| ends[i]);
        let hold = |b: &mut Builder, step: StepId| {
            if let Some(earlier) = earlier {
                b.after(earlier, step);
            }
        };
        let mut end = None;
        // What is this node's own comes last: the cards begin at once.
        let inside = distance == cells.len();
        if inside {
            for mate in cells.mates() {
                for (offset, len) in chunks(own.len, call.chunk) {
                    let step = b.send(mate, own.part(offset, len));
                    hold(&mut b, step);
                }
            }
        } else {
            let to = cells.proxy(cells.ahead(distance), call.rank());
            for (offset, len) in chunks(own.len, call.chunk) {
                let step = b.send(to, own.part(offset, len));
                hold(&mut b, step);
            }
        }
        for &source in cells.ranks(cells.behind(distance % cells.len())) {
            if source == call.group.rank {
                continue;
            }
            let whole = output(source.index());
            let from = if inside { source } else { cells.proxy(cells.own(), source.index()) };
            let mine = !inside && from == call.group.rank;
            for (offset, len) in chunks(whole.len, call.chunk) {
                let chunk = whole.part(offset, len);
                let step = b.recv(if mine { source } else { from }, chunk);
                hold(&mut b, step);
                end = Some(step);
                if mine {
                    for mate in cells.mates() {
                        b.send(mate, chunk);
                    }
                }
            }
        }
        ends.extend(end);
    }
    b.copy(own, place);
    b.finish()
}
