//! Shared memory inside a node: one segment per communicator, through which its blocking collectives go.
//!
//! Every rank writes into its own part of the segment and reads those of the others:
//!
//! ```text
//! rank r:  done | produced | progress[0..n]     counters that the others read
//!          slots[0..32]                         collective s uses slot s % 32: number, length, up to 48 bytes of payload
//!          ring                                 longer payloads
//! ```
//!
//! Ranks count the collectives of the communicator, so they agree on the slot without a word. A rank that sends writes its
//! payload once, then the collective's number; whoever needs it waits for that number. What a slot says about its payload
//! (how long, where, whether more is to come) is all that a reader needs: ranks never have to agree on a size.
//! A slot or a piece of the ring is written again only when all have finished the collective that had it, or, for a
//! message longer than a chunk, when its readers have gone past it.
//!
//! [`layout`]: where things are. [`segment`]: the memory. [`lane`]: slots, rings, waiting. [`movement`] and
//! [`reductions`]: the collectives. [`request`]: what front ends ask for. [`pool`]: segments for later communicators of the same ranks.

mod lane;
mod layout;
mod movement;
mod pool;
mod reductions;
mod request;
mod segment;
#[cfg(test)]
mod tests;
mod wait;

pub use lane::{Lane, LaneError};
pub use layout::{Layout, MAX_RANKS};
pub use pool::{Members, Pool};
pub use reductions::Fold;
pub use segment::{Descriptor, Segment, SegmentError, SegmentKind};
pub use wait::{Waiter, is_oversubscribed};
