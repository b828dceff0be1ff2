//! Open MPI's point-to-point layer as a [`Transport`].

use hetccl_core::{Handle, MessageTag, Posted, Rank, Region, Transport, TransportError};

use crate::communicator::{CommunicatorRef, check};
use crate::sys;

/// The internal tags that hetccl uses: `-(TAG_BASE + n)`, n below 2^22. User tags are not negative, and Open MPI's own
/// internal ones lie above -(2^22); 24 bits are what every PML keeps of a tag.
const TAG_BASE: i32 = 1 << 22;
/// Bits of the sequence number in a tag: the runtime lets 64 collectives of a communicator run at a time.
const SEQUENCE_MASK: u16 = 0x3f;

/// A message under way.
#[derive(Clone, Copy)]
struct Pending {
    request: *mut sys::ompi_request_t,
    peer: Rank,
    room_bytes: usize,
    receives: bool,
}

/// Messages of one communicator through the PML.
pub struct PmlTransport {
    communicator: CommunicatorRef,
    /// For inter-communicators: where the local group talks among itself, and its size.
    local: Option<(CommunicatorRef, usize)>,
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
}

// SAFETY: requests are touched only through this value, which its owner keeps under a lock.
unsafe impl Send for PmlTransport {}

impl PmlTransport {
    /// A transport between the ranks of `communicator`, which outlives it.
    pub fn new(communicator: CommunicatorRef) -> PmlTransport {
        let group = communicator.group();
        let local = match group.remote_size {
            Some(_) => communicator.local().map(|local| (local, group.len())),
            None => None,
        };
        PmlTransport { communicator, local, pending: Vec::new(), free: Vec::new() }
    }

    /// The communicator and rank in it that reach the engine's `peer`, and the tag.
    fn route(&self, peer: Rank, tag: MessageTag) -> (CommunicatorRef, i32, i32) {
        match self.local {
            Some((local, size)) if peer.index() < size => {
                (local, peer.0 as i32, number(beside_the_local_collectives(tag)))
            }
            Some((_, size)) => (self.communicator, (peer.index() - size) as i32, number(tag)),
            None => (self.communicator, peer.0 as i32, number(tag)),
        }
    }

    /// Looks at a new message once, and keeps it when it has not finished.
    fn keep(&mut self, pending: Pending) -> Result<Posted, TransportError> {
        if let Some(result) = finish(pending) {
            return result.map(|()| Posted::Done);
        }
        let index = match self.free.pop() {
            Some(index) => {
                self.pending[index as usize] = Some(pending);
                index
            }
            None => {
                self.pending.push(Some(pending));
                (self.pending.len() - 1) as u32
            }
        };
        Ok(Posted::Pending(Handle(u64::from(index))))
    }
}

impl Transport for PmlTransport {
    fn send(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        from: Region,
    ) -> Result<Posted, TransportError> {
        let (communicator, rank, tag) = self.route(peer, tag);
        let mut request = std::ptr::null_mut();
        // SAFETY: the region stays valid until the message has finished or is cancelled (the engine's promise).
        let status = unsafe {
            sys::hetccl_pml_isend(
                std::ptr::with_exposed_provenance(from.address.0),
                from.len_bytes,
                rank,
                tag,
                communicator.as_ptr(),
                &mut request,
            )
        };
        check(status).map_err(|code| failed("PML isend", code, peer))?;
        self.keep(Pending { request, peer, room_bytes: from.len_bytes, receives: false })
    }

    fn recv(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        into: Region,
    ) -> Result<Posted, TransportError> {
        let (communicator, rank, tag) = self.route(peer, tag);
        let mut request = std::ptr::null_mut();
        // SAFETY: the region stays valid until the message has finished or is cancelled (the engine's promise).
        let status = unsafe {
            sys::hetccl_pml_irecv(
                std::ptr::with_exposed_provenance_mut(into.address.0),
                into.len_bytes,
                rank,
                tag,
                communicator.as_ptr(),
                &mut request,
            )
        };
        check(status).map_err(|code| failed("PML irecv", code, peer))?;
        self.keep(Pending { request, peer, room_bytes: into.len_bytes, receives: true })
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        let index = handle.0 as usize;
        let Some(pending) = self.pending[index] else { return Ok(true) };
        match finish(pending) {
            None => Ok(false),
            Some(result) => {
                self.pending[index] = None;
                self.free.push(index as u32);
                result.map(|()| true)
            }
        }
    }

    /// A receive that nobody has answered ends here. A send, and a receive that has been matched, can't be taken back:
    /// the PML keeps them and finishes them on its own.
    fn cancel(&mut self, handle: Handle) {
        let index = handle.0 as usize;
        let Some(pending) = self.pending[index].take() else { return };
        self.free.push(index as u32);
        if pending.receives {
            // SAFETY: the request is live: it has not been tested to its end.
            unsafe { sys::hetccl_pml_cancel(pending.request) };
        }
        let _ = finish(pending);
    }
}

/// Messages inside a group of an inter-communicator travel on the group's own communicator, whose collectives have
/// numbers below 57 and from 62 on: the few numbers of an inter-communicator (0, 62 and 63) get those between.
fn beside_the_local_collectives(tag: MessageTag) -> MessageTag {
    let sequence = match tag.sequence {
        62 => 58,
        63 => 59,
        _ => 57,
    };
    MessageTag { sequence, ..tag }
}

/// The tag that the PML gets.
fn number(tag: MessageTag) -> i32 {
    let low = i32::from(tag.sequence & SEQUENCE_MASK) << 16 | i32::from(tag.step);
    -(TAG_BASE + low)
}

/// The result of a message that has finished, and its request freed; `None` when it has not.
fn finish(pending: Pending) -> Option<Result<(), TransportError>> {
    let Pending { mut request, peer, room_bytes, receives } = pending;
    let (mut error, mut bytes) = (0, 0);
    // SAFETY: the request is live; a finished one is freed here and forgotten by the callers.
    if !unsafe { sys::hetccl_pml_test(&mut request, &mut error, &mut bytes) } {
        return None;
    }
    let success = error == sys::MPI_SUCCESS as i32;
    Some(if success && receives && bytes != room_bytes {
        // Open MPI takes a short message for a whole one; what it lacks would be rubbish in the result.
        Err(TransportError::Truncated { peer, sent_bytes: bytes, room_bytes })
    } else if success {
        Ok(())
    } else if receives && error == sys::MPI_ERR_TRUNCATE as i32 {
        Err(TransportError::Truncated { peer, sent_bytes: bytes, room_bytes })
    // SAFETY: looks at a number.
    } else if unsafe { sys::hetccl_ft_is_failed_process(error) } {
        Err(TransportError::PeerFailed { peer, reason: "Open MPI says so".to_owned() })
    } else {
        Err(failed(if receives { "PML receive" } else { "PML send" }, error, peer))
    })
}

fn failed(operation: &'static str, native_code: i32, peer: Rank) -> TransportError {
    TransportError::Failed { operation, native_code, reason: format!("message with rank {peer}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_negative_distinct_and_fit_in_24_bits() {
        let tag = |sequence, step| number(MessageTag { sequence, step });
        assert_eq!(tag(0, 0), -(1 << 22));
        assert_ne!(tag(1, 0), tag(0, 1));
        assert_eq!(tag(64, 5), tag(0, 5), "numbers come again after 64 collectives");
        assert!(tag(63, u16::MAX) > -(1 << 23));
    }
}
