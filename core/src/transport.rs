//! What the engine asks of the outside: a [`Transport`] that moves bytes between ranks and a
//! [`Device`] that copies and reduces. Both may finish at once or later.

use crate::op::Reduction;
use crate::schedule::GroupCollective;
use crate::types::{Rank, Region};

/// Distinguishes the messages of one pair of ranks inside one communicator.
///
/// `sequence` counts the communicator's collectives; `step` is the n-th message of that collective
/// from this sender to this receiver. Both wrap; messages of one pair with the same tag arrive in the
/// order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageTag {
    /// The collective's number in its communicator, modulo 65,536.
    pub sequence: u16,
    /// The message's number in its collective between this pair, modulo 65,536.
    pub step: u16,
}

/// The transport's or device's name for something it has not finished yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

/// The answer to a request: finished already, or to be asked for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Finished; the memory may be used again.
    Done,
    /// Under way; ask [`Transport::test`] or [`Device::test`] with this handle until it says finished.
    Pending(Handle),
}

/// A failed message, copy or reduction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The peer sent more than the receive had room for, or less than it needs.
    #[error(
        "message from rank {peer} has {sent_bytes} bytes, the receive has room for {room_bytes}: count or datatype differ between the ranks"
    )]
    Truncated {
        /// The sender.
        peer: Rank,
        /// Bytes that arrived or were announced (0 when the transport does not say).
        sent_bytes: usize,
        /// Bytes that were expected.
        room_bytes: usize,
    },
    /// The peer's process or host is gone.
    #[error("rank {peer} is gone: {reason}")]
    PeerFailed {
        /// The peer that failed.
        peer: Rank,
        /// What the transport said.
        reason: String,
    },
    /// No way to the peer: no address, no common fabric.
    #[error("rank {peer} can't be reached: {reason}")]
    Unreachable {
        /// The peer that was asked for.
        peer: Rank,
        /// What was looked for, and what to try.
        reason: String,
    },
    /// There is no use in waiting any longer.
    #[error("{reason}")]
    GivenUp {
        /// The front end's own error class.
        class: i32,
        /// Why.
        reason: String,
    },
    /// Anything else the transport or device reports.
    #[error("{operation} failed with code {native_code}: {reason}")]
    Failed {
        /// The call that failed.
        operation: &'static str,
        /// Its own error code.
        native_code: i32,
        /// Its own words.
        reason: String,
    },
}

/// Moves bytes between the ranks of one communicator.
///
/// Messages of one pair with the same [`MessageTag`] are matched in order; others in any order. A
/// receive must be given exactly the region its message fills: any other length is
/// [`TransportError::Truncated`]. Zero-byte messages are messages.
pub trait Transport {
    /// Starts to send `from` to `peer`. The region stays unchanged until finished.
    fn send(&mut self, peer: Rank, tag: MessageTag, from: Region)
    -> Result<Posted, TransportError>;

    /// Starts to receive the message of `peer` with `tag` into `into`.
    fn recv(&mut self, peer: Rank, tag: MessageTag, into: Region)
    -> Result<Posted, TransportError>;

    /// Whether a posted operation has finished. After `Ok(true)` or an error the handle is gone.
    fn test(&mut self, handle: Handle) -> Result<bool, TransportError>;

    /// Gives up on an operation; its memory may be used again when this returns.
    fn cancel(&mut self, handle: Handle);
}

/// A collective for the vendor's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCall {
    /// Which.
    pub collective: GroupCollective,
    /// The root's place in the group, where there is one.
    pub root: u32,
    /// The operation, where it combines.
    pub reduction: Option<Reduction>,
}

impl GroupCall {
    /// The error of a rank that can't start it, and why.
    pub fn refused(&self, reason: impl Into<String>) -> TransportError {
        let operation = "a collective of the vendor's library";
        TransportError::Failed { operation, native_code: 0, reason: reason.into() }
    }
}

/// Copies and reduces memory on this rank. The caller drives progress of both traits elsewhere.
pub trait Device {
    /// Starts `into = from`; the lengths are equal and the regions don't overlap.
    fn copy(&mut self, from: Region, into: Region) -> Result<Posted, TransportError>;

    /// Starts `into = left op right` over `count` elements.
    ///
    /// `into` is `right`, or `left`, or overlaps neither. `left` holds the contributions of lower ranks where the
    /// operation is not commutative.
    fn reduce(
        &mut self,
        reduction: &Reduction,
        left: Region,
        right: Region,
        into: Region,
        count: usize,
    ) -> Result<Posted, TransportError>;

    /// Whether copies and reductions run in the order in which they were started, and collectives of the library's group after
    /// the copies and reductions before them. The engine then starts steps that depend on earlier ones of these without
    /// waiting for those to finish.
    fn in_order(&self) -> bool {
        false
    }

    /// Starts a collective of the vendor's library among the ranks of this rank's group. They run in the order in which they
    /// were started. Where a rank has no part in input or output, that region is empty.
    fn group(
        &mut self,
        call: GroupCall,
        _from: Region,
        _into: Region,
    ) -> Result<Posted, TransportError> {
        Err(call.refused(format!("there is no library here for {:?}", call.collective)))
    }

    /// Whether a started copy, reduction or collective has finished.
    fn test(&mut self, handle: Handle) -> Result<bool, TransportError>;
}
