//! Reduce_scatter and reduce_scatter_block.

pub mod in_order;
pub mod pairwise;
pub mod recursive_halving;
pub mod ring;

use crate::builder::Builder;
use crate::call::{Block, Call, Collective};
use crate::schedule::{Buffer, Span};

const BOTH: &[Collective] = &[Collective::ReduceScatter, Collective::ReduceScatterBlock];

/// The block of `rank` in the vector that is reduced.
fn block(call: &Call, rank: usize) -> Block {
    call.send_block(rank)
}

/// The blocks of ranks `from..to`: they follow each other.
fn range(call: &Call, from: usize, to: usize) -> Block {
    let start = block(call, from).start;
    let last = block(call, to - 1);
    Block { start, len: last.start + last.len - start }
}

/// Elements of the whole vector.
fn total(call: &Call) -> usize {
    range(call, 0, call.size()).len
}

/// This rank's result, at the start of the output.
fn result(call: &Call) -> Span {
    Span::new(Buffer::Output, 0, block(call, call.rank()).len)
}

/// Where to reduce into: the output, or, in place, scratch memory, because the output still holds what other ranks wait
/// for.
fn accumulator(b: &mut Builder, call: &Call) -> Span {
    let result = result(call);
    if call.in_place { b.scratch(result.len) } else { result }
}
