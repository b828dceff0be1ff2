//! Reduce_scatter and reduce_scatter_block between two groups, by their leaders.
//!
//! - Steps: a binomial reduce to each leader, one exchange of whole vectors between the leaders, then one message from
//!   the leader to each rank of its group.
//! - Bytes per rank: the vector sent up once, its own block received; leaders exchange the vector and send all blocks.
//! - Reduction order: that of the ranks of the other group.
//! - Limits: both groups' blocks add up to the same vector (MPI demands it). Scratch: 4 vectors at most.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.10.
//!
//! ```text
//! groups A 0 1, B 0 1    reduce A0<-A1, B0<-B1    exchange A0<->B0    scatter A0->A1, B0->B1
//! ```

use super::{local_tree, remote_leader};
use crate::algorithms::pieces::{Exchange, tree_reduce};
use crate::algorithms::{Algorithm, Scope, WINDOW, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::ReduceScatter, Collective::ReduceScatterBlock],
    scope: Scope::Inter,
    summary: "reduce to a leader, exchange, scatter from it",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let last = call.send_block(call.size() - 1);
    let total = last.start + last.len;
    let input = Span::new(Buffer::Input, 0, total);
    let result = Span::new(Buffer::Output, 0, call.send_block(call.rank()).len);
    match tree_reduce(&mut b, &local_tree(call), input, None) {
        None => {
            b.recv(Rank::from(super::LEADER), result);
        }
        Some(sum) => {
            let theirs = b.scratch(total);
            b.recv(remote_leader(call), theirs);
            b.send(remote_leader(call), sum);
            let part = |rank: usize| {
                let block = call.send_block(rank);
                theirs.part(block.start, block.len)
            };
            let sends = (1..call.size()).map(|peer| (Rank::from(peer), part(peer))).collect();
            Exchange { sends, recvs: Vec::new() }.build(&mut b, WINDOW);
            b.copy(part(super::LEADER), result);
        }
    }
    b.finish()
}
