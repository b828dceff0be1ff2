//! Operations of a fabric: started, tested, cancelled.

use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use hetccl_core::{Handle, Posted, Rank, Region, TransportError};

use super::{Fabric, RemoteKeyId};
use crate::context::ucx_memory_type;
use crate::endpoint::Endpoint;
use crate::error::transport_error;
use crate::operation::{Kind, recv_done, send_done};
use crate::sys::{self, Started};

/// How long a cancelled operation may take to end by itself, and again after its endpoint was closed by force.
const CANCEL_PATIENCE: Duration = Duration::from_millis(100);

/// All bits of a tag count.
const WHOLE_TAG: u64 = u64::MAX;

impl Fabric {
    /// Starts to send `from` through an endpoint.
    #[inline]
    pub(crate) fn send(
        &mut self,
        endpoint: u32,
        peer: Rank,
        tag: u64,
        from: Region,
    ) -> Result<Posted, TransportError> {
        let raw = self.endpoint(endpoint, peer)?;
        let (index, param) = self.begin(Kind::Send, endpoint, peer, from);
        // SAFETY: endpoint and parameters are valid; whoever made the region keeps it until the operation is over.
        let pointer = unsafe {
            self.library.api().ucp_tag_send_nbx(
                raw,
                from.address.0 as *const _,
                from.len_bytes,
                tag,
                &param,
            )
        };
        self.settle(index, pointer)
    }

    /// Starts to receive a message with `tag` into `into`. The endpoint is the one to the sender.
    #[inline]
    pub(crate) fn recv(
        &mut self,
        endpoint: u32,
        peer: Rank,
        tag: u64,
        into: Region,
    ) -> Result<Posted, TransportError> {
        let (index, mut param) = self.begin(Kind::Recv, endpoint, peer, into);
        // Also a message that is there already is reported by callback: UCX before 1.16 doesn't tell its length otherwise.
        param.op_attr_mask |= sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        param.cb.recv = Some(recv_done);
        let buffer = into.address.0 as *mut c_void;
        // SAFETY: worker and parameters are valid; whoever made the region keeps it until the operation is over.
        let pointer = unsafe {
            self.library.api().ucp_tag_recv_nbx(
                self.worker.raw(),
                buffer,
                into.len_bytes,
                tag,
                WHOLE_TAG,
                &param,
            )
        };
        let posted = self.settle(index, pointer)?;
        match posted {
            // What the peer sent before it failed has been found already, by the call above.
            Posted::Pending(handle) if self.usable(endpoint).is_none() => {
                self.cancel(handle);
                Err(self.endpoints[endpoint as usize].failure_error(peer))
            }
            posted => Ok(posted),
        }
    }

    /// Starts to write `from` to a peer's memory.
    ///
    /// # Safety
    /// `remote_address` and as many bytes as `from` has lie inside the memory that the key is for.
    pub(crate) unsafe fn put(
        &mut self,
        peer: Rank,
        from: Region,
        remote_address: u64,
        key: RemoteKeyId,
    ) -> Result<Posted, TransportError> {
        let (endpoint, raw_key) = self.remote(Kind::Put, key)?;
        let raw = self.endpoint(endpoint, peer)?;
        let (index, param) = self.begin(Kind::Put, endpoint, peer, from);
        let buffer = from.address.0 as *const c_void;
        // SAFETY: endpoint, key and parameters are valid; the caller vouches for both memories.
        let pointer = unsafe {
            self.library.api().ucp_put_nbx(
                raw,
                buffer,
                from.len_bytes,
                remote_address,
                raw_key,
                &param,
            )
        };
        self.settle(index, pointer)
    }

    /// Starts to read a peer's memory into `into`.
    ///
    /// # Safety
    /// As [`put`](Self::put).
    pub(crate) unsafe fn get(
        &mut self,
        peer: Rank,
        into: Region,
        remote_address: u64,
        key: RemoteKeyId,
    ) -> Result<Posted, TransportError> {
        let (endpoint, raw_key) = self.remote(Kind::Get, key)?;
        let raw = self.endpoint(endpoint, peer)?;
        let (index, param) = self.begin(Kind::Get, endpoint, peer, into);
        let buffer = into.address.0 as *mut c_void;
        // SAFETY: endpoint, key and parameters are valid; the caller vouches for both memories.
        let pointer = unsafe {
            self.library.api().ucp_get_nbx(
                raw,
                buffer,
                into.len_bytes,
                remote_address,
                raw_key,
                &param,
            )
        };
        self.settle(index, pointer)
    }

    /// Starts to wait until everything sent and put through an endpoint has reached the peer.
    pub(crate) fn flush(&mut self, endpoint: u32, peer: Rank) -> Result<Posted, TransportError> {
        let raw = self.endpoint(endpoint, peer)?;
        let (index, mut param) = self.begin(Kind::Flush, endpoint, peer, Region::default());
        param.op_attr_mask &= !sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        // SAFETY: endpoint and parameters are valid.
        let pointer = unsafe { self.library.api().ucp_ep_flush_nbx(raw, &param) };
        self.settle(index, pointer)
    }

    /// Whether an operation has finished; then, or when it has failed, its handle is gone.
    #[inline]
    pub(crate) fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        let Some(index) = self.operations.index(handle) else {
            return Err(TransportError::Failed {
                operation: "test",
                native_code: i32::from(sys::UCS_ERR_NO_ELEM),
                reason: "the operation is over or was never started".into(),
            });
        };
        let operation = self.operations.get(index);
        if operation.is_done() {
            return self.finish(index).map(|()| true);
        }
        // UCX lets receives from a failed peer wait, and sends of which the peer had to fetch the data.
        let (endpoint, peer) = (operation.endpoint(), operation.peer());
        if self.usable(endpoint).is_none() {
            self.cancel(handle);
            return Err(self.endpoints[endpoint as usize].failure_error(peer));
        }
        Ok(false)
    }

    /// Gives up on an operation; its memory may be used again when this returns.
    ///
    /// A receive that has not met its message is taken back at once. UCX can't take back anything else: it gets a
    /// moment to end, then the endpoint is closed by force, which fails whatever else is under way with that peer.
    pub(crate) fn cancel(&mut self, handle: Handle) {
        let Some(index) = self.operations.index(handle) else { return };
        let operation = self.operations.get(index);
        let (endpoint, request) = (operation.endpoint(), operation.request());
        if !operation.is_done() {
            // SAFETY: the request is this worker's and has not been freed.
            unsafe { self.library.api().ucp_request_cancel(self.worker.raw(), request) };
        }
        if !self.operations.get(index).is_done() && self.usable(endpoint).is_none() {
            self.close_by_force(endpoint);
        }
        if self.wait(index, Instant::now() + CANCEL_PATIENCE) {
            let _ = self.finish(index);
            return;
        }
        self.close_by_force(endpoint);
        if self.wait(index, Instant::now() + CANCEL_PATIENCE) {
            let _ = self.finish(index);
        } else {
            self.abandon(index);
        }
    }

    /// Progresses until an operation is over or `deadline` has passed; whether it is over.
    pub(crate) fn wait(&mut self, index: u32, deadline: Instant) -> bool {
        while !self.operations.get(index).is_done() {
            if Instant::now() >= deadline {
                return false;
            }
            self.progress();
        }
        true
    }

    /// Waits for an operation until `deadline`; one that isn't over by then is abandoned.
    pub(crate) fn finish_until(
        &mut self,
        handle: Handle,
        deadline: Instant,
    ) -> Result<bool, TransportError> {
        let Some(index) = self.operations.index(handle) else { return Ok(true) };
        if self.wait(index, deadline) {
            return self.finish(index).map(|()| true);
        }
        self.abandon(index);
        Ok(false)
    }

    /// The endpoint's UCX handle, if it is of use.
    #[inline]
    fn usable(&self, endpoint: u32) -> Option<sys::ucp_ep_h> {
        self.endpoints.get(endpoint as usize).and_then(Endpoint::usable)
    }

    /// The endpoint's UCX handle, or why it has none.
    #[inline]
    pub(super) fn endpoint(
        &self,
        endpoint: u32,
        peer: Rank,
    ) -> Result<sys::ucp_ep_h, TransportError> {
        match self.endpoints.get(endpoint as usize) {
            Some(known) => known.usable().ok_or_else(|| known.failure_error(peer)),
            None => Err(TransportError::Unreachable {
                peer,
                reason: "UCX was closed and opened again".into(),
            }),
        }
    }

    /// Takes an operation from the slab and makes the parameters that lead UCX to it.
    #[inline]
    fn begin(
        &mut self,
        kind: Kind,
        endpoint: u32,
        peer: Rank,
        region: Region,
    ) -> (u32, sys::ucp_request_param_t) {
        let index = self.operations.acquire();
        let operation = self.operations.get(index);
        operation.begin(kind, peer, endpoint, region.len_bytes);
        let param = sys::ucp_request_param_t {
            op_attr_mask: sys::UCP_OP_ATTR_FIELD_CALLBACK
                | sys::UCP_OP_ATTR_FIELD_USER_DATA
                | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE,
            cb: sys::ucp_request_param_t__bindgen_ty_1 { send: Some(send_done) },
            user_data: ptr::from_ref(operation).cast_mut().cast(),
            memory_type: ucx_memory_type(region.memory),
            ..Default::default()
        };
        (index, param)
    }

    /// Sorts what UCX answered to a new operation. The callback may have run already.
    #[inline]
    fn settle(
        &mut self,
        index: u32,
        pointer: sys::ucs_status_ptr_t,
    ) -> Result<Posted, TransportError> {
        match sys::started(pointer) {
            Started::Done => {
                self.operations.release(index);
                Ok(Posted::Done)
            }
            Started::Request(request) => {
                let operation = self.operations.get(index);
                operation.set_request(request);
                if operation.is_done() {
                    return self.finish(index).map(|()| Posted::Done);
                }
                Ok(Posted::Pending(self.operations.handle(index)))
            }
            Started::Failed(status) => {
                let result = self.result(index, status, 0);
                self.operations.release(index);
                result.map(|()| Posted::Done)
            }
        }
    }

    /// Ends an operation that UCX has called back for.
    #[inline]
    fn finish(&mut self, index: u32) -> Result<(), TransportError> {
        let operation = self.operations.get(index);
        // SAFETY: the request that UCX gave for this operation, freed once.
        unsafe { self.library.api().ucp_request_free(operation.request()) };
        let result = self.result(index, operation.status(), operation.received_bytes());
        self.operations.release(index);
        result
    }

    /// Leaves an operation to UCX, which still has its address.
    fn abandon(&mut self, index: u32) {
        // SAFETY: the request that UCX gave for this operation, freed once; UCX keeps it for itself until it ends.
        unsafe { self.library.api().ucp_request_free(self.operations.get(index).request()) };
        self.operations.abandon(index);
    }

    /// How an operation ended.
    #[inline]
    fn result(
        &self,
        index: u32,
        status: sys::ucs_status_t,
        received_bytes: usize,
    ) -> Result<(), TransportError> {
        let operation = self.operations.get(index);
        match status {
            sys::UCS_OK if operation.kind() == Kind::Recv => {
                self.check_length(operation.peer(), received_bytes, operation.room_bytes())
            }
            sys::UCS_OK => Ok(()),
            sys::UCS_ERR_MESSAGE_TRUNCATED => Err(TransportError::Truncated {
                peer: operation.peer(),
                sent_bytes: received_bytes,
                room_bytes: operation.room_bytes(),
            }),
            status => {
                let endpoint = self.endpoints.get(operation.endpoint() as usize);
                match endpoint.filter(|endpoint| endpoint.failure() != sys::UCS_OK) {
                    Some(endpoint) => Err(endpoint.failure_error(operation.peer())),
                    None => Err(transport_error(
                        self.library,
                        operation.kind().call(),
                        operation.peer(),
                        status,
                    )),
                }
            }
        }
    }

    /// Refuses a message that doesn't fill its receive.
    #[inline]
    fn check_length(
        &self,
        peer: Rank,
        received_bytes: usize,
        room_bytes: usize,
    ) -> Result<(), TransportError> {
        if received_bytes == room_bytes {
            return Ok(());
        }
        Err(TransportError::Truncated { peer, sent_bytes: received_bytes, room_bytes })
    }

    /// The endpoint that a key is for, and the key as UCX knows it.
    fn remote(
        &self,
        kind: Kind,
        key: RemoteKeyId,
    ) -> Result<(u32, sys::ucp_rkey_h), TransportError> {
        match self.remote_keys.get(key.0 as usize) {
            Some(Some(key)) => Ok((key.endpoint, key.raw())),
            _ => Err(TransportError::Failed {
                operation: kind.call(),
                native_code: i32::from(sys::UCS_ERR_NO_ELEM),
                reason: "the remote key has been released".into(),
            }),
        }
    }
}
