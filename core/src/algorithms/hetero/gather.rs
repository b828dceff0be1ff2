//! Gather through all cards of the root's node: blocks from other nodes go to the root's neighbours, which pass them on over
//! the links inside the node. Where those are no faster than the way to the root itself, everybody sends to the root.
//!
//! - Steps: 2; up to [`WINDOW`] messages of each rank at a time.
//! - Bytes: every block crosses a border once, and a link of the root's node once more.
//! - Reduction order: none.
//! - Limits: the topology must be known; gatherv always goes to the root directly, because only the root knows the lengths. Scratch: on the
//!   root's neighbours [`WINDOW`] chunks, or less.
//! - Source: none; the direct exchange with a relay.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! cards      c: 2->0     d: 3->1
//! inside     d: 1->0     b: 1->0
//! ```

use super::order::Cells;
use super::{hierarchy, known, order};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span, StepId};
use crate::topology::{Hierarchy, Route};
use crate::types::Rank;

/// Messages under way at a time.
pub const WINDOW: usize = 32;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Gather, Collective::Gatherv],
    scope: Scope::Intra,
    summary: "to the root through all cards of its node; large blocks",
    supports: known,
    build,
};

/// The rank that a rank's block goes through on its way to or from the root: itself where it goes directly.
pub(super) fn relay(call: &Call, hierarchy: &Hierarchy, rank: Rank) -> Rank {
    let root = call.root_rank();
    let uniform = matches!(call.collective, Collective::Gather | Collective::Scatter);
    let cells = Cells::new(hierarchy.by_cell(), root);
    if !uniform || cells.cell_of(rank.index()) == cells.own() {
        return rank;
    }
    let through = cells.proxy(cells.own(), rank.index());
    let fast = hierarchy.topology().route(through.index(), root) == Route::Fabric;
    if fast { through } else { rank }
}

/// All ranks but the root in the order in which it deals with them: cells take turns, so that all borders are busy.
pub(super) fn turns(hierarchy: &Hierarchy, root: usize) -> Vec<Rank> {
    let division = hierarchy.by_cell();
    let order = order::from(division, root);
    let mut keyed: Vec<(usize, Rank)> = order[1..]
        .iter()
        .map(|&rank| {
            let seat = division.seats[rank.index()];
            (seat.index, rank)
        })
        .collect();
    keyed.sort_by_key(|&(index, _)| index);
    keyed.into_iter().map(|(_, rank)| rank).collect()
}

/// Makes `step` wait for the one [`WINDOW`] before it.
pub(super) fn in_window(b: &mut Builder, steps: &mut Vec<StepId>, step: StepId) {
    if let Some(earlier) = steps.len().checked_sub(WINDOW) {
        b.after(steps[earlier], step);
    }
    steps.push(step);
}

fn build(call: &Call) -> Schedule {
    let hierarchy = hierarchy(call);
    let (me, root) = (call.group.rank, call.root_rank());
    let mut b = Builder::new(call.in_place);
    let own = || span(Buffer::Input, call.send_block(0));
    let mut steps = Vec::new();
    if me.index() == root {
        if !call.in_place {
            b.copy(own(), span(Buffer::Output, call.recv_block(root)));
        }
        for rank in turns(hierarchy, root) {
            let through = relay(call, hierarchy, rank);
            let from = if through.index() == root { rank } else { through };
            let block = span(Buffer::Output, call.recv_block(rank.index()));
            for (offset, len) in chunks(block.len, call.chunk) {
                let step = b.recv(from, block.part(offset, len));
                in_window(&mut b, &mut steps, step);
            }
        }
        return b.finish();
    }
    // What this rank passes on, and its own block among it, in the root's order.
    let chunk = call.chunk.min(call.count()).max(1);
    let mut places: Vec<Span> = Vec::new();
    let mut next = 0;
    for rank in turns(hierarchy, root) {
        let through = relay(call, hierarchy, rank);
        if rank == me {
            let to = if through == me { Rank::from(root) } else { through };
            for (offset, len) in chunks(own().len, call.chunk) {
                b.send(to, own().part(offset, len));
            }
        } else if through == me {
            for (_, len) in chunks(call.count(), call.chunk) {
                if places.len() < WINDOW && next == places.len() {
                    places.push(b.scratch(chunk));
                }
                let place = places[next % places.len()].part(0, len);
                next = (next + 1) % WINDOW;
                b.recv(rank, place);
                b.send(Rank::from(root), place);
            }
        }
    }
    b.finish()
}
