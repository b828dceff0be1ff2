//! Bcast with the vendors' libraries: inside the root's group, from its ranks in turn to a rank of each other group, and inside those.
//!
//! - Steps per chunk: the library's bcast in the root's group, one message to each other group, the library's bcast there.
//! - Bytes over the border of a group: n to each other group, in chunks through all ranks in turn.
//! - Reduction order: none.
//! - Limits: a vendor's library in some group. Scratch: none.
//! - Source: H. Kim et al., "HetCCL: Accelerating LLM Training with Heterogeneous GPUs", arXiv 2601.22585, 2026, for the phases.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! library    0->1
//! chunk 0    0->2
//! chunk 1                1->3
//! library                            2->3        3->2
//! ```

use super::{hierarchy, inside, with_library};
use crate::algorithms::patterns::{chunks, whole};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero_library",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "the vendors' libraries inside their groups, chunks between through all ranks; large messages",
    supports: with_library,
    build,
};

fn build(call: &Call) -> Schedule {
    let division = hierarchy(call).by_library();
    let rank = call.rank();
    let (seat, root) = (division.seats[rank], division.seats[call.root_rank()]);
    let (unit, index) = division.of(rank);
    let from_root = &division.units[root.unit].ranks;
    let (input, output) = whole(call.count());
    let buffer = if rank == call.root_rank() { input } else { output };
    let mut b = Builder::new(false);
    for (number, (start, len)) in chunks(call.count(), call.chunk).enumerate() {
        let chunk = buffer.part(start, len);
        let border = |ranks: usize| number % ranks;
        let relay = border(from_root.len());
        if seat.unit != root.unit {
            let here = border(unit.ranks.len());
            if index == here {
                b.recv(from_root[relay], chunk);
            }
            inside::bcast(&mut b, (unit, index), here, chunk);
            continue;
        }
        inside::bcast(&mut b, (unit, index), root.index, chunk);
        if index == relay {
            for (_, other) in division.units.iter().enumerate().filter(|&(u, _)| u != root.unit) {
                b.send(other.ranks[border(other.ranks.len())], chunk);
            }
        }
    }
    b.finish()
}
