//! Allgather and allgatherv.

pub mod bruck;
pub mod linear;
pub mod neighbour_exchange;
pub mod recursive_doubling;
pub mod ring;

use crate::algorithms::patterns::span;
use crate::builder::Builder;
use crate::call::{Call, Layout};
use crate::schedule::{Buffer, Span};

/// Where the block of `rank` goes.
fn output(call: &Call, rank: usize) -> Span {
    span(Buffer::Output, call.recv_block(rank))
}

/// This rank's own block: where to send it from, and its copy to its place in the output.
fn own_block(b: &mut Builder, call: &Call) -> Span {
    let place = output(call, call.rank());
    if call.in_place {
        return place;
    }
    let input = Span::new(Buffer::Input, 0, place.len);
    b.copy(input, place);
    input
}

/// Ranks all send the same count.
fn uniform(call: &Call) -> bool {
    matches!(call.layout, Layout::Uniform { .. })
}
