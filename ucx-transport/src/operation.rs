//! The slab of operations under way, and the callbacks through which UCX reports their end.
//!
//! UCX holds the address of an [`Operation`] until it has called back, so operations live in chunks that never move
//! and are shared by address: their fields are cells, and no exclusive reference to one ever exists.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use hetccl_core::{Handle, Rank};

use crate::sys;

const CHUNK_LEN: usize = 256;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Recv,
    Put,
    Get,
    Flush,
}

impl Kind {
    /// The function that starts it, for errors.
    pub(crate) const fn call(self) -> &'static str {
        match self {
            Kind::Send => "ucp_tag_send_nbx",
            Kind::Recv => "ucp_tag_recv_nbx",
            Kind::Put => "ucp_put_nbx",
            Kind::Get => "ucp_get_nbx",
            Kind::Flush => "ucp_ep_flush_nbx",
        }
    }
}

/// One operation under way, or a free place for one.
pub(crate) struct Operation {
    taken: Cell<bool>,
    /// Set by the callback, with the two after it.
    done: Cell<bool>,
    status: Cell<sys::ucs_status_t>,
    kind: Cell<Kind>,
    generation: Cell<u32>,
    received_bytes: Cell<usize>,
    request: Cell<*mut c_void>,
    peer: Cell<Rank>,
    endpoint: Cell<u32>,
    room_bytes: Cell<usize>,
}

impl Operation {
    /// Readies a free operation.
    #[inline]
    pub(crate) fn begin(&self, kind: Kind, peer: Rank, endpoint: u32, room_bytes: usize) {
        self.taken.set(true);
        self.done.set(false);
        self.kind.set(kind);
        self.peer.set(peer);
        self.endpoint.set(endpoint);
        self.room_bytes.set(room_bytes);
        self.request.set(ptr::null_mut());
    }

    /// Whether UCX has called back.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.done.get()
    }

    /// How it ended; of use once done.
    #[inline]
    pub(crate) fn status(&self) -> sys::ucs_status_t {
        self.status.get()
    }

    /// The length of a received message; of use once done.
    #[inline]
    pub(crate) fn received_bytes(&self) -> usize {
        self.received_bytes.get()
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.kind.get()
    }

    #[inline]
    pub(crate) fn peer(&self) -> Rank {
        self.peer.get()
    }

    #[inline]
    pub(crate) fn endpoint(&self) -> u32 {
        self.endpoint.get()
    }

    #[inline]
    pub(crate) fn room_bytes(&self) -> usize {
        self.room_bytes.get()
    }

    /// UCX's request, null before there is one.
    #[inline]
    pub(crate) fn request(&self) -> *mut c_void {
        self.request.get()
    }

    #[inline]
    pub(crate) fn set_request(&self, request: NonNull<c_void>) {
        self.request.set(request.as_ptr());
    }
}

/// Reports the end of a send, a put, a get or a flush.
pub(crate) unsafe extern "C" fn send_done(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    user_data: *mut c_void,
) {
    // SAFETY: the user data of a request is an operation of a slab that outlives the worker.
    let operation = unsafe { &*user_data.cast::<Operation>() };
    operation.status.set(status);
    operation.done.set(true);
}

/// Reports the end of a receive.
pub(crate) unsafe extern "C" fn recv_done(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    info: *const sys::ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: the user data of a request is an operation of a slab that outlives the worker.
    let operation = unsafe { &*user_data.cast::<Operation>() };
    // SAFETY: UCX's own, valid during the callback where it is given.
    let length = unsafe { info.as_ref() }.map_or(0, |info| info.length);
    operation.received_bytes.set(length);
    operation.status.set(status);
    operation.done.set(true);
}

/// The slab.
pub(crate) struct Operations {
    chunks: Vec<NonNull<Operation>>,
    free: Vec<u32>,
    /// Given up by their owner, still UCX's.
    abandoned: Vec<u32>,
}

impl Operations {
    pub(crate) const fn new() -> Operations {
        Operations { chunks: Vec::new(), free: Vec::new(), abandoned: Vec::new() }
    }

    /// A free operation's index. It stays taken until [`release`](Self::release).
    #[inline]
    pub(crate) fn acquire(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        }
    }

    /// The operation with this index.
    ///
    /// # Panics
    /// When no operation ever had the index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Operation {
        let chunk = self.chunks[index as usize / CHUNK_LEN];
        // SAFETY: chunks hold CHUNK_LEN operations, live until the slab is dropped and are only shared.
        unsafe { chunk.add(index as usize % CHUNK_LEN).as_ref() }
    }

    /// The name under which the owner asks for an operation.
    #[inline]
    pub(crate) fn handle(&self, index: u32) -> Handle {
        Handle(u64::from(self.get(index).generation.get()) << 32 | u64::from(index))
    }

    /// The index behind a handle whose operation has not been released.
    #[inline]
    pub(crate) fn index(&self, handle: Handle) -> Option<u32> {
        let (index, generation) = (handle.0 as u32, (handle.0 >> 32) as u32);
        let known = (index as usize) < self.chunks.len() * CHUNK_LEN;
        (known && self.get(index).generation.get() == generation).then_some(index)
    }

    /// Makes an operation free again; its handles lose their meaning. UCX must be through with it.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let operation = self.get(index);
        operation.taken.set(false);
        operation.generation.set(operation.generation.get().wrapping_add(1));
        self.free.push(index);
    }

    /// Gives up an operation that UCX still holds; it becomes free when UCX has called back.
    pub(crate) fn abandon(&mut self, index: u32) {
        let operation = self.get(index);
        operation.generation.set(operation.generation.get().wrapping_add(1));
        self.abandoned.push(index);
    }

    /// The endpoints of operations that UCX has not called back for.
    pub(crate) fn endpoints_in_use(&self) -> Vec<u32> {
        let all = (0..(self.chunks.len() * CHUNK_LEN) as u32).map(|index| self.get(index));
        let mut endpoints: Vec<u32> = all
            .filter(|operation| operation.taken.get() && !operation.is_done())
            .map(Operation::endpoint)
            .collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }

    /// How many operations are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.chunks.len() * CHUNK_LEN - self.free.len()
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let mut abandoned = std::mem::take(&mut self.abandoned);
        abandoned.retain(|&index| {
            let done = self.get(index).is_done();
            if done {
                self.get(index).taken.set(false);
                self.free.push(index);
            }
            !done
        });
        self.abandoned = abandoned;
        if self.free.is_empty() {
            let chunk: Box<[Operation]> = (0..CHUNK_LEN).map(|_| Operation::free()).collect();
            let first = (self.chunks.len() * CHUNK_LEN) as u32;
            self.chunks.push(NonNull::from(Box::leak(chunk)).cast());
            self.free.extend((first..first + CHUNK_LEN as u32).rev());
        }
        self.free.pop().expect("the slab has just grown")
    }
}

impl Operation {
    const fn free() -> Operation {
        Operation {
            taken: Cell::new(false),
            done: Cell::new(false),
            status: Cell::new(0),
            kind: Cell::new(Kind::Send),
            generation: Cell::new(0),
            received_bytes: Cell::new(0),
            request: Cell::new(ptr::null_mut()),
            peer: Cell::new(Rank(0)),
            endpoint: Cell::new(0),
            room_bytes: Cell::new(0),
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            let chunk = ptr::slice_from_raw_parts_mut(chunk.as_ptr(), CHUNK_LEN);
            // SAFETY: made by `grow` from a box of this length; the owner drops the worker, and with it UCX's
            // pointers, first.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_handle_is_unknown() {
        let mut slab = Operations::new();
        assert_eq!(slab.index(Handle(0)), None);
        let index = slab.acquire();
        let handle = slab.handle(index);
        assert_eq!(slab.index(handle), Some(index));
        slab.release(index);
        assert_eq!(slab.index(handle), None);
        assert_eq!(slab.acquire(), index);
        assert_ne!(slab.handle(index), handle);
    }

    #[test]
    fn operations_keep_their_address_while_the_slab_grows() {
        let mut slab = Operations::new();
        let first = slab.acquire();
        let address: *const Operation = slab.get(first);
        let others: Vec<u32> = (0..3 * CHUNK_LEN).map(|_| slab.acquire()).collect();
        assert_eq!(slab.get(first) as *const Operation, address);
        assert_eq!(slab.taken(), 3 * CHUNK_LEN + 1);
        others.into_iter().for_each(|index| slab.release(index));
        assert_eq!(slab.taken(), 1);
    }

    #[test]
    fn an_abandoned_operation_comes_back_once_done() {
        let mut slab = Operations::new();
        let all: Vec<u32> = (0..CHUNK_LEN).map(|_| slab.acquire()).collect();
        let abandoned = all[7];
        slab.get(abandoned).begin(Kind::Flush, Rank(0), 0, 0);
        slab.abandon(abandoned);
        assert_ne!(slab.acquire(), abandoned, "UCX has not called back");
        let operation: *const Operation = slab.get(abandoned);
        // SAFETY: the operation is the slab's and lives.
        unsafe { send_done(ptr::null_mut(), 0, operation.cast_mut().cast()) };
        let rest: Vec<u32> = (0..CHUNK_LEN).map(|_| slab.acquire()).collect();
        assert!(rest.contains(&abandoned));
    }
}
