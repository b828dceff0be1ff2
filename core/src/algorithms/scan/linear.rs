//! Scan and exscan along a chain, in chunks.
//!
//! - Steps: p - 1 + m - 1 for m chunks; rank r waits for the sum of the ranks below it and passes its own on.
//! - Bytes per rank: n received and n sent.
//! - Reduction order: that of the ranks.
//! - Limits: none. Scratch: 2 n elements at most.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.11.
//!
//! ```text
//! ranks    0         1           2            3
//! step 0   0: 0->1
//! step 1             01: 1->2
//! step 2                         012: 2->3
//! ```

use crate::algorithms::patterns::{chunks, whole};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collectives: super::BOTH,
    scope: Scope::Intra,
    summary: "chunks from rank to rank, least traffic; large vectors, few ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, count) = (call.rank(), call.size(), call.count());
    let inclusive = call.collective == Collective::Scan;
    let mut b = Builder::new(call.in_place);
    let (input, output) = whole(count);
    let is_last = rank + 1 == size;
    let (lower, upper) = (Rank::from(rank.saturating_sub(1)), Rank::from(rank + 1));
    // Exscan's output is what arrives; in place, it must wait until the contribution has been added.
    let arrivals = if rank > 0 && (inclusive || call.in_place) { b.scratch(count) } else { output };
    let sums = if inclusive || rank == 0 || is_last { output } else { b.scratch(count) };
    for (offset, len) in chunks(count, call.chunk) {
        let part = |whole: Span| whole.part(offset, len);
        if rank == 0 {
            if !is_last {
                b.send(upper, part(input));
            }
            if inclusive {
                b.copy(part(input), part(output));
            }
            continue;
        }
        b.recv(lower, part(arrivals));
        if inclusive || !is_last {
            b.reduce(part(arrivals), part(input), part(sums));
        }
        if !is_last {
            b.send(upper, part(sums));
        }
        if !inclusive {
            b.copy(part(arrivals), part(output));
        }
    }
    b.finish()
}
