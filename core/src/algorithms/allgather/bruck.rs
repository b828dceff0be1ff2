//! Allgather and allgatherv by Bruck's algorithm.
//!
//! - Steps: ceil(log2 p); in step k rank r sends the first 2^k blocks that it has to r - 2^k and gets as many from
//!   r + 2^k (fewer in the last step).
//! - Bytes per rank: all blocks but one, sent and received, and all blocks copied at the end.
//! - Reduction order: none.
//! - Limits: none; blocks may differ. Scratch: all blocks, without gaps, beginning with that of rank r.
//! - Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications
//!   in Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.
//!
//! ```text
//! ranks    0          1          2          3
//! has      0          1          2          3
//! step 0   01         12         23         30
//! step 1   0123       1230       2301       3012
//! rotate   0123       0123       0123       0123
//! ```

use super::output;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps and a rotation; small blocks, any number of ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let places: Vec<Span> = (rank..rank + size).map(|peer| output(call, peer % size)).collect();
    let mut starts = vec![0];
    starts.extend(places.iter().scan(0, |end, place| {
        *end += place.len;
        Some(*end)
    }));
    let turned = b.scratch(starts[size]);
    let blocks = |from: usize, to: usize| turned.part(starts[from], starts[to] - starts[from]);
    let own = if call.in_place { places[0] } else { Span::new(Buffer::Input, 0, places[0].len) };
    b.copy(own, blocks(0, 1));
    let mut have = 1;
    while have < size {
        let more = have.min(size - have);
        let (to, from) = ((rank + size - have) % size, (rank + have) % size);
        b.recv(Rank::from(from), blocks(have, have + more));
        b.send(Rank::from(to), blocks(0, more));
        have += more;
    }
    let mut first = 0;
    while first < size {
        let next = end_of_run(&places, first);
        let run = Span { len: starts[next] - starts[first], ..places[first] };
        b.copy(blocks(first, next), run);
        first = next;
    }
    b.finish()
}

/// The block after the last of those from `first` on that lie one behind the other.
fn end_of_run(places: &[Span], first: usize) -> usize {
    let joined = places[first..].windows(2).take_while(|pair| pair[0].end() == pair[1].start);
    first + joined.count() + 1
}
