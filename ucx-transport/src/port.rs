//! A communicator's transport: a fabric and one of its channels.

use std::time::Instant;

use hetccl_core::{Handle, MessageTag, Posted, Rank, Region, Transport, TransportError};

use crate::channel::Channel;
use crate::fabric::{Fabric, RemoteKeyId};

/// A communicator's transport.
///
/// Regions given to it are memory of this process that stays allocated until the operation is over; whoever makes
/// regions answers for that, as everywhere in the engine.
#[derive(Debug)]
pub struct Port<'a> {
    /// The process's share of UCX.
    pub fabric: &'a mut Fabric,
    /// The communicator's use of it.
    pub channel: &'a mut Channel,
}

impl Transport for Port<'_> {
    #[inline]
    fn send(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        from: Region,
    ) -> Result<Posted, TransportError> {
        let endpoint = self.channel.endpoint(self.fabric, peer)?;
        self.fabric.send(endpoint, peer, self.channel.send_tag(peer, tag), from)
    }

    #[inline]
    fn recv(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        into: Region,
    ) -> Result<Posted, TransportError> {
        let endpoint = self.channel.endpoint(self.fabric, peer)?;
        self.fabric.recv(endpoint, peer, self.channel.recv_tag(peer, tag), into)
    }

    #[inline]
    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        self.fabric.test(handle)
    }

    fn cancel(&mut self, handle: Handle) {
        self.fabric.cancel(handle);
    }
}

impl Port<'_> {
    /// Makes a peer's memory reachable from the bytes that [`Fabric::packed_key`] gave there.
    ///
    /// # Errors
    /// The peer has failed or can't be reached, or shares no way to its memory.
    pub fn remote_key(&mut self, peer: Rank, packed: &[u8]) -> Result<RemoteKeyId, TransportError> {
        let endpoint = self.channel.endpoint(self.fabric, peer)?;
        self.fabric.unpack_key(endpoint, peer, packed)
    }

    /// Starts to write `from` into memory of `peer`, from `remote_address` on. When it has finished `from` may be
    /// changed; the peer sees the bytes after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// The peer has failed, or the key has been released.
    ///
    /// # Safety
    /// The bytes written lie inside the memory that the key is for, and the region is as [`Port`] demands.
    pub unsafe fn put(
        &mut self,
        peer: Rank,
        from: Region,
        remote_address: u64,
        key: RemoteKeyId,
    ) -> Result<Posted, TransportError> {
        // SAFETY: the caller's promise.
        unsafe { self.fabric.put(peer, from, remote_address, key) }
    }

    /// Starts to read memory of `peer`, from `remote_address` on, into `into`.
    ///
    /// # Errors
    /// The peer has failed, or the key has been released.
    ///
    /// # Safety
    /// The bytes read lie inside the memory that the key is for, and the region is as [`Port`] demands.
    pub unsafe fn get(
        &mut self,
        peer: Rank,
        into: Region,
        remote_address: u64,
        key: RemoteKeyId,
    ) -> Result<Posted, TransportError> {
        // SAFETY: the caller's promise.
        unsafe { self.fabric.get(peer, into, remote_address, key) }
    }

    /// Starts to wait until all that was sent and put to `peer` has got there.
    ///
    /// # Errors
    /// The peer has failed or can't be reached.
    pub fn flush(&mut self, peer: Rank) -> Result<Posted, TransportError> {
        let endpoint = self.channel.endpoint(self.fabric, peer)?;
        self.fabric.flush(endpoint, peer)
    }

    /// Waits, with progress, until all that was sent and put to `peer` has got there, but not beyond `deadline`.
    /// `Ok(false)` when it has not by then.
    ///
    /// # Errors
    /// The peer has failed or can't be reached.
    pub fn flush_until(&mut self, peer: Rank, deadline: Instant) -> Result<bool, TransportError> {
        match self.flush(peer)? {
            Posted::Done => Ok(true),
            Posted::Pending(handle) => self.fabric.finish_until(handle, deadline),
        }
    }
}
