//! A process's share of UCX: context, worker, endpoints, registered memory and all operations under way.

mod operations;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use hetccl_core::{MemoryType, Rank, Region, TransportError};
use rustc_hash::FxHashMap;

use crate::context::{Context, FabricParams};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::library::Library;
use crate::liveness::Process;
use crate::memory::{MemoryHandle, RemoteKey};
use crate::operation::Operations;
use crate::sys;
use crate::worker::Worker;

/// Registered memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryId(u32);

/// A peer's registered memory, reachable by put and get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKeyId(u32);

/// A process's share of UCX. See the [module documentation](crate).
///
/// Dropping it does not wait for anything; [`close`](Fabric::close) does, and is what peers that still have messages
/// from this process under way need.
pub struct Fabric {
    // In the order in which UCX wants them gone; endpoints and operations are written by UCX until the worker is gone.
    remote_keys: Vec<Option<RemoteKey>>,
    memory: Vec<Option<MemoryHandle>>,
    worker: Worker,
    context: Context,
    endpoints: Vec<Endpoint>,
    by_key: FxHashMap<u64, u32>,
    operations: Operations,
    watch: Watch,
    address: Box<[u8]>,
    library: &'static Library,
}

/// When to look next whether peers on this host live.
struct Watch {
    this: Process,
    calls: u32,
    /// The endpoint to look at next.
    next: usize,
    last: Instant,
}

/// Calls of [`Fabric::progress`] between looks at the clock; a power of two.
const CALLS_PER_CLOCK: u32 = 4096;

/// Time between looks at processes, and how many are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
const WATCHED_AT_ONCE: usize = 16;

/// How much is taken in from a peer that has ended before its endpoint counts as failed.
const LAST_MESSAGES: usize = 10_000;

// SAFETY: UCX's objects may be used by any thread, one at a time (the worker's mode is serialized), and everything that
// they point to is owned here; `&mut Fabric` is the only way to them.
unsafe impl Send for Fabric {}

impl Fabric {
    /// Starts UCX in this process.
    ///
    /// # Errors
    /// [`Error::Call`] with what UCX says: no usable device, a setting it doesn't know, no memory.
    pub fn open(library: &'static Library, params: &FabricParams) -> Result<Fabric, Error> {
        let context = Context::new(library, params)?;
        let worker = Worker::new(&context)?;
        let this = Process::this();
        let address = [&this.encode()[..], worker.address()].concat().into();
        Ok(Fabric {
            remote_keys: Vec::new(),
            memory: Vec::new(),
            worker,
            context,
            endpoints: Vec::new(),
            by_key: FxHashMap::default(),
            operations: Operations::new(),
            watch: Watch { this, calls: 0, next: 0, last: Instant::now() },
            address,
            library,
        })
    }

    /// This process's address, for its peers; a few hundred bytes.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Whether UCX reaches memory of this type itself.
    pub fn reaches(&self, memory: MemoryType) -> bool {
        self.context.reaches(memory)
    }

    /// How many peers have an endpoint.
    pub fn endpoints(&self) -> usize {
        self.endpoints.len()
    }

    /// Lets UCX work; whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.watch.calls = self.watch.calls.wrapping_add(1);
        if self.watch.calls.is_multiple_of(CALLS_PER_CLOCK) {
            self.look_after_peers();
        }
        self.worker.progress()
    }

    /// Registers memory for puts and gets of peers.
    ///
    /// # Errors
    /// [`Error::Call`] when UCX can't register it.
    ///
    /// # Safety
    /// The region is memory of this process and stays allocated until it has been [deregistered](Self::deregister) or
    /// the fabric is gone.
    pub unsafe fn register(&mut self, region: Region) -> Result<MemoryId, Error> {
        // SAFETY: the caller's promise.
        let handle = unsafe { MemoryHandle::new(&self.context, region)? };
        Ok(MemoryId(insert(&mut self.memory, handle)))
    }

    /// The key of registered memory, as bytes for [`Port::remote_key`](crate::Port::remote_key) at a peer.
    ///
    /// # Errors
    /// [`Error::Call`] when UCX fails, or the memory isn't registered.
    pub fn packed_key(&self, memory: MemoryId) -> Result<Vec<u8>, Error> {
        match self.memory.get(memory.0 as usize) {
            Some(Some(handle)) => handle.packed_key(),
            _ => Err(Error::Call {
                operation: "ucp_rkey_pack",
                native_code: i32::from(sys::UCS_ERR_NO_ELEM),
                reason: "the memory is not registered".into(),
            }),
        }
    }

    /// Ends a registration. Peers' keys for it become invalid.
    pub fn deregister(&mut self, memory: MemoryId) {
        if let Some(slot) = self.memory.get_mut(memory.0 as usize) {
            *slot = None;
        }
    }

    /// Forgets a peer's key.
    pub fn release_key(&mut self, key: RemoteKeyId) {
        if let Some(slot) = self.remote_keys.get_mut(key.0 as usize) {
            *slot = None;
        }
    }

    /// Ends all connections after what has been sent to live peers has been delivered, and UCX in this process.
    ///
    /// Endpoints with operations that have not finished are closed by force: those operations fail at the peer.
    /// Let peers close at about the same time: an endpoint to a process that has left counts as failed.
    ///
    /// # Errors
    /// [`Error::NotClosed`] when peers did not answer until `deadline`; UCX has been ended all the same.
    pub fn close(mut self, deadline: Instant) -> Result<(), Error> {
        self.remote_keys.clear();
        // What is still under way will not end: its owner has given up on it.
        for endpoint in self.operations.endpoints_in_use() {
            self.close_by_force(endpoint);
        }
        let closing = self.endpoints.iter_mut().filter_map(|endpoint| endpoint.start_close(false));
        let mut closing: Vec<NonNull<c_void>> = closing.collect();
        loop {
            closing.retain(|&request| !self.free_if_done(request));
            if closing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                break;
            }
            self.progress();
        }
        for request in &closing {
            // SAFETY: a request of this worker, freed once; UCX keeps it for itself until it ends.
            unsafe { self.library.api().ucp_request_free(request.as_ptr()) };
        }
        Err(Error::NotClosed { endpoints: closing.len() })
    }

    /// The number of the endpoint to the process `key`, made from its address where there is none yet.
    pub(crate) fn connect(
        &mut self,
        key: u64,
        peer: Rank,
        address: &[u8],
    ) -> Result<u32, TransportError> {
        if let Some(&number) = self.by_key.get(&key) {
            return Ok(number);
        }
        let Some((process, address)) =
            Process::decode(address).filter(|(_, rest)| !rest.is_empty())
        else {
            return Err(TransportError::Unreachable {
                peer,
                reason: "it has published no UCX address".into(),
            });
        };
        let process = self.watch.this.sees(&process).then_some(process);
        let endpoint = Endpoint::connect(self.library, &mut self.worker, peer, address, process)?;
        let number = self.endpoints.len() as u32;
        self.endpoints.push(endpoint);
        self.by_key.insert(key, number);
        Ok(number)
    }

    /// Unpacks a peer's key for an endpoint.
    pub(crate) fn unpack_key(
        &mut self,
        endpoint: u32,
        peer: Rank,
        packed: &[u8],
    ) -> Result<RemoteKeyId, TransportError> {
        let raw = self.endpoint(endpoint, peer)?;
        let key = RemoteKey::unpack(self.library, raw, endpoint, peer, packed)?;
        Ok(RemoteKeyId(insert(&mut self.remote_keys, key)))
    }

    /// Looks, if it is time, whether some of the peers on this host have ended.
    #[cold]
    fn look_after_peers(&mut self) {
        if self.watch.last.elapsed() < WATCH_INTERVAL || self.endpoints.is_empty() {
            return;
        }
        self.watch.last = Instant::now();
        for _ in 0..self.endpoints.len().min(WATCHED_AT_ONCE) {
            let index = self.watch.next % self.endpoints.len();
            self.watch.next = index + 1;
            if self.endpoints[index].has_lost_its_peer() {
                let _ = (0..LAST_MESSAGES).find(|_| !self.worker.progress());
                self.endpoints[index].note_ended();
            }
        }
    }

    /// Closes an endpoint by force; nothing if it is closed.
    fn close_by_force(&mut self, endpoint: u32) {
        let Some(endpoint) = self.endpoints.get_mut(endpoint as usize) else { return };
        if let Some(close) = endpoint.start_close(true) {
            // SAFETY: the request is this worker's, freed once; UCX keeps it for itself until it ends.
            unsafe { self.library.api().ucp_request_free(close.as_ptr()) };
        }
    }

    /// Frees a request without a callback if it has ended.
    fn free_if_done(&self, request: NonNull<c_void>) -> bool {
        // SAFETY: a request of this worker that has not been freed.
        if unsafe { self.library.api().ucp_request_check_status(request.as_ptr()) }
            == sys::UCS_INPROGRESS
        {
            return false;
        }
        // SAFETY: as above; freed once.
        unsafe { self.library.api().ucp_request_free(request.as_ptr()) };
        true
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // UCX aborts when a worker is destroyed with a rendezvous under way; closing by force ends those.
        (0..self.endpoints.len()).for_each(|endpoint| self.close_by_force(endpoint as u32));
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric")
            .field("library", self.library)
            .field("endpoints", &self.endpoints.len())
            .finish_non_exhaustive()
    }
}

/// Puts a value into the first free slot.
fn insert<T>(slots: &mut Vec<Option<T>>, value: T) -> u32 {
    let free = slots.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    });
    slots[index] = Some(value);
    index as u32
}
