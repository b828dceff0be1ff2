//! Scatter through all cards of the root's node: blocks for other nodes go to the root's neighbours over the links inside the
//! node, and from there out. Where those links are no faster than the way out itself, the root sends everything.
//!
//! - Steps: 2; up to [`WINDOW`](super::gather::WINDOW) messages of each rank at a time.
//! - Bytes: every block crosses a border once, and a link of the root's node once before.
//! - Reduction order: none.
//! - Limits: the topology must be known; scatterv always comes from the root directly, because only the root knows the lengths. Scratch: on
//!   the root's neighbours as many chunks as are under way, or less.
//! - Source: none; the direct exchange with a relay.
//!
//! ```text
//! ranks      0 (A)              1 (A)       2 (B)       3 (B)
//! inside     d: 0->1 b: 0->1
//! cards      c: 0->2            d: 1->3
//! ```

use super::gather::{WINDOW, in_window, relay, turns};
use super::{hierarchy, known};
use crate::algorithms::patterns::{chunks, span};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Scatter, Collective::Scatterv],
    scope: Scope::Intra,
    summary: "from the root through all cards of its node; large blocks",
    supports: known,
    build,
};

fn build(call: &Call) -> Schedule {
    let hierarchy = hierarchy(call);
    let (me, root) = (call.group.rank, call.root_rank());
    // In place concerns the root's output, which it does not have: Input stays what it is.
    let mut b = Builder::new(false);
    let mut steps = Vec::new();
    if me.index() == root {
        for rank in turns(hierarchy, root) {
            let through = relay(call, hierarchy, rank);
            let to = if through.index() == root { rank } else { through };
            let block = span(Buffer::Input, call.send_block(rank.index()));
            for (offset, len) in chunks(block.len, call.chunk) {
                let step = b.send(to, block.part(offset, len));
                in_window(&mut b, &mut steps, step);
            }
        }
        if !call.in_place {
            let own = span(Buffer::Output, call.recv_block(0));
            b.copy(span(Buffer::Input, call.send_block(root)), own);
        }
        return b.finish();
    }
    let own = span(Buffer::Output, call.recv_block(0));
    let chunk = call.chunk.min(call.count()).max(1);
    let mut places: Vec<Span> = Vec::new();
    let mut next = 0;
    for rank in turns(hierarchy, root) {
        let through = relay(call, hierarchy, rank);
        if rank == me {
            let from = if through == me { Rank::from(root) } else { through };
            for (offset, len) in chunks(own.len, call.chunk) {
                b.recv(from, own.part(offset, len));
            }
        } else if through == me {
            for (_, len) in chunks(call.count(), call.chunk) {
                if places.len() < WINDOW && next == places.len() {
                    places.push(b.scratch(chunk));
                }
                let place = places[next % places.len()].part(0, len);
                next = (next + 1) % WINDOW;
                b.recv(Rank::from(root), place);
                b.send(rank, place);
            }
        }
    }
    b.finish()
}
