//! Alltoall, alltoallv and alltoallw.

pub mod bruck;
pub mod linear;
pub mod pairwise;

use crate::algorithms::patterns::span;
use crate::algorithms::pieces::Exchange;
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

pub(super) const ALL: &[Collective] =
    &[Collective::Alltoall, Collective::Alltoallv, Collective::Alltoallw];

/// What this rank sends to each rank. In place, it is copied first: the output that it lies in is written.
pub(super) fn blocks_to_send(b: &mut Builder, call: &Call) -> Vec<Span> {
    let blocks: Vec<Span> =
        (0..call.size()).map(|peer| span(Buffer::Input, call.send_block(peer))).collect();
    if !call.in_place {
        return blocks;
    }
    let kept = b.scratch(blocks.iter().map(|block| block.len).sum());
    let mut at = 0;
    blocks
        .into_iter()
        .map(|block| {
            let copy = kept.part(at, block.len);
            at += block.len;
            b.copy(block, copy);
            copy
        })
        .collect()
}

/// The direct exchange: every block in one message, `window` of them at a time, peers in order of distance.
fn direct(call: &Call, window: usize) -> Schedule {
    let (rank, size) = (call.rank(), call.size());
    let mut b = Builder::new(call.in_place);
    let blocks = blocks_to_send(&mut b, call);
    let arriving = |peer: usize| span(Buffer::Output, call.recv_block(peer));
    b.copy(blocks[rank], arriving(rank));
    let mut exchange = Exchange::default();
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        exchange.recvs.push((Rank::from(from), arriving(from)));
        exchange.sends.push((Rank::from(to), blocks[to]));
    }
    exchange.build(&mut b, window);
    b.finish()
}
