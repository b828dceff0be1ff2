//! Allgather and allgatherv by neighbour exchange.
//!
//! - Steps: p / 2; ranks exchange with their left and right neighbours in turn: first their own blocks, then always the
//!   pair of blocks that came last.
//! - Bytes per rank: all blocks but one, sent and received: the least possible, in half the steps of a ring.
//! - Reduction order: none.
//! - Limits: p is even. Scratch: none.
//! - Source: J. Chen, L. Zhang, Y. Zhang, W. Yuan, "Performance Evaluation of Allgather Algorithms on Terascale Linux
//!   Cluster with Fast Ethernet", HPC Asia 2005.
//!
//! ```text
//! ranks    0          1          2          3
//! step 0   0 <-> 1               2 <-> 3                each its own block
//! has      01         01         23         23
//! step 1   0 <-> 3    1 <-> 2                           the pair that came last
//! has      0123       0123       0123       0123
//! ```

use super::{output, own_block};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "neighbour_exchange",
    collectives: &[Collective::Allgather, Collective::Allgatherv],
    scope: Scope::Intra,
    summary: "p / 2 exchanges with both neighbours in turn, least traffic; even numbers of ranks",
    supports: |call| call.size() % 2 == 0,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let own = own_block(&mut b, call);
    let is_even = rank % 2 == 0;
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let partners = if is_even { [right, left] } else { [left, right] };
    b.recv(Rank::from(partners[0]), output(call, partners[0]));
    b.send(Rank::from(partners[0]), own);
    // Pairs are numbered: pair j holds the blocks of ranks 2j and 2j + 1. What comes from the left lies ever further
    // to the left, and so on the right.
    let pairs = size / 2;
    let own_pair = rank / 2;
    let mut latest = own_pair;
    for step in 1..pairs {
        let partner = partners[step % 2];
        let from_left = partner == left;
        let distance = step.div_ceil(2);
        let arriving = if from_left {
            (own_pair + pairs - distance) % pairs
        } else {
            (own_pair + distance) % pairs
        };
        for block in [2 * arriving, 2 * arriving + 1] {
            b.recv(Rank::from(partner), output(call, block));
        }
        for block in [2 * latest, 2 * latest + 1] {
            b.send(Rank::from(partner), output(call, block));
        }
        latest = arriving;
    }
    b.finish()
}
