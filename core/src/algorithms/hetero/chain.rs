//! Bcast and reduce along a chain of all ranks in the order of the machine, in chunks.
//!
//! - Steps: p - 1 + m - 1 for m chunks. The chain enters and leaves every node once.
//! - Bytes per rank: n received and n sent, but at the ends: the least possible for devices with one link each.
//! - Reduction order: the chain's, from the far end to the root; commutative operations only.
//! - Limits: commutative operations; the topology must be known. Scratch: bcast none, reduce four chunks.
//! - Source: J. L. Träff, A. Ripke, C. Siebert, P. Balaji, R. Thakur, W. Gropp, "A Pipelined Algorithm for Large, Irregular
//!   All-Gather Problems", International Journal of High Performance Computing Applications 24(1), 2010, section 2.
//!
//! ```text
//! ranks    0 (A)     2 (A)     1 (B)     3 (B)
//! step 0   a: 0->2
//! step 1   b: 0->2   a: 2->1
//! step 2   c: 0->2   b: 2->1   a: 1->3
//! ```

use super::{hierarchy, known, known_and_commutative, order};
use crate::algorithms::patterns::chunks;
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// Places for arriving chunks in a reduce.
const PLACES: usize = 2;

/// Bcast. See the [module documentation](self).
pub const BCAST: Algorithm = Algorithm {
    name: "hetero_chain",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "chunks from rank to rank in the machine's order; large messages, one link a device",
    supports: known,
    build: bcast,
};

/// Reduce. See the [module documentation](self).
pub const REDUCE: Algorithm = Algorithm {
    name: "hetero_chain",
    collectives: &[Collective::Reduce],
    scope: Scope::Intra,
    summary: "chunks from rank to rank in the machine's order; large vectors, one link a device",
    supports: known_and_commutative,
    build: reduce,
};

/// The ranks before and after this one on the way from the root.
fn neighbours(call: &Call) -> (Option<Rank>, Option<Rank>) {
    let order = order::from(hierarchy(call).by_cell(), call.root_rank());
    let at = order.iter().position(|&rank| rank == call.group.rank).unwrap_or(0);
    (at.checked_sub(1).map(|before| order[before]), order.get(at + 1).copied())
}

fn bcast(call: &Call) -> Schedule {
    let (before, after) = neighbours(call);
    let buffer = if before.is_none() { Buffer::Input } else { Buffer::Output };
    let data = Span::new(buffer, 0, call.count());
    let mut b = Builder::new(false);
    for (offset, len) in chunks(data.len, call.chunk) {
        let chunk = data.part(offset, len);
        if let Some(before) = before {
            b.recv(before, chunk);
        }
        if let Some(after) = after {
            b.send(after, chunk);
        }
    }
    b.finish()
}

fn reduce(call: &Call) -> Schedule {
    let (before, after) = neighbours(call);
    let count = call.count();
    let input = Span::new(Buffer::Input, 0, count);
    let mut b = Builder::new(call.in_place);
    let chunk = call.chunk.clamp(1, count.max(1));
    let places: Vec<Span> =
        if after.is_some() { (0..PLACES).map(|_| b.scratch(chunk)).collect() } else { Vec::new() };
    // Only the root has an output.
    let sums: Vec<Span> = match (before, after) {
        (Some(_), Some(_)) => (0..PLACES).map(|_| b.scratch(chunk)).collect(),
        _ => Vec::new(),
    };
    for (i, (offset, len)) in chunks(count, chunk).enumerate() {
        let mut part = input.part(offset, len);
        if let Some(after) = after {
            let arrived = places[i % PLACES].part(0, len);
            b.recv(after, arrived);
            let into = match before {
                Some(_) => sums[i % PLACES].part(0, len),
                None => Span::new(Buffer::Output, offset, len),
            };
            b.reduce(part, arrived, into);
            part = into;
        }
        match before {
            Some(before) => {
                b.send(before, part);
            }
            None => {
                b.copy(part, Span::new(Buffer::Output, offset, len));
            }
        }
    }
    b.finish()
}
