//! Shared memory inside a node: one segment per communicator, through which its collectives go.
//!
//! Every rank writes into its own part of the segment and reads those of the others:
//!
//! ```text
//! for blocking collectives, and again for each lane of polled ones:
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
//! [`layout`]: where things are. [`segment`]: the memory. [`lane`]: a rank's end. `collectives/`: slots and rings, the
//! collectives, what front ends ask for; written once, and compiled as functions that wait ([`blocking`]) and as futures
//! ([`polled`]). [`flow`]: polled collectives of a communicator. [`pool`]: segments for later communicators of the same ranks.

pub mod blocking;
mod flow;
mod fold;
mod lane;
mod layout;
// The collectives are written once, and are functions there and futures here.
#[allow(clippy::duplicate_mod)]
pub mod polled;
mod pool;
mod segment;
mod short;
#[cfg(test)]
mod tests;
mod wait;

pub use flow::Flow;
pub use fold::Fold;
pub use lane::LaneError;
pub use layout::{Layout, MAX_RANKS};
pub use pool::{Lanes, Members, Pool};
pub use segment::{Descriptor, Room, Segment, SegmentError, SegmentKind};
pub use wait::{Waiter, is_oversubscribed};
