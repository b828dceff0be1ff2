//! Barrier by nodes: signals to one rank of each cell, dissemination between those, signals back.
//!
//! - Steps: 2 inside nodes, ceil(log2 c) between c cells.
//! - Bytes: none; every message is empty.
//! - Reduction order: none.
//! - Limits: the topology must be known. Scratch: none.
//! - Source: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", International Journal of
//!   Parallel Programming 17(1), 1988, for the dissemination.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! gather                 1->0                    3->2
//! round 0    0->2                    2->0
//! release    0->1                    2->3
//! ```

use super::order::Cells;
use super::{hierarchy, known};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span, StepId};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Barrier],
    scope: Scope::Intra,
    summary: "one rank of each node signals the others' nodes; many ranks a node",
    supports: known,
    build,
};

fn build(call: &Call) -> Schedule {
    let cells = Cells::new(hierarchy(call).by_cell(), call.rank());
    let mut b = Builder::new(false);
    let nothing = Span::new(Buffer::Output, 0, 0);
    let leader = |cell: usize| cells.ranks(cell)[0];
    let own = leader(cells.own());
    if own != call.group.rank {
        b.send(own, nothing);
        b.recv(own, nothing);
        return b.finish();
    }
    // A signal says that everybody heard of so far has come, so it waits for all that came before.
    let mut arrived: Vec<StepId> = cells.mates().map(|mate| b.recv(mate, nothing)).collect();
    let mut distance = 1;
    while distance < cells.len() {
        let send = b.send(leader(cells.ahead(distance)), nothing);
        for &earlier in &arrived {
            b.after(earlier, send);
        }
        arrived.push(b.recv(leader(cells.behind(distance)), nothing));
        distance *= 2;
    }
    for mate in cells.mates() {
        let send = b.send(mate, nothing);
        for &earlier in &arrived {
            b.after(earlier, send);
        }
    }
    b.finish()
}
