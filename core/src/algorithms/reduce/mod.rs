//! Reduce.

pub mod binomial;
pub mod in_order;
pub mod rabenseifner;

use crate::algorithms::patterns::whole;
use crate::call::Call;
use crate::schedule::Span;

/// Whether this rank is the root.
fn is_root(call: &Call) -> bool {
    call.rank() == call.root_rank()
}

/// The contribution, and the output where there is one.
fn buffers(call: &Call) -> (Span, Option<Span>) {
    let (input, output) = whole(call.count());
    (input, is_root(call).then_some(output))
}
