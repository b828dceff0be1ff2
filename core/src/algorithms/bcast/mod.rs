//! Bcast.

pub mod binomial;
pub mod pipelined_chain;
pub mod scatter_allgather;

use crate::call::Call;
use crate::schedule::{Buffer, Span};

/// The one buffer of a bcast: the root's input, everybody else's output.
fn data(call: &Call) -> Span {
    let buffer = if call.rank() == call.root_rank() { Buffer::Input } else { Buffer::Output };
    Span::new(buffer, 0, call.count())
}
