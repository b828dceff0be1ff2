//! Registered memory and the keys by which peers reach it.

use std::ptr;
use std::slice;

use hetccl_core::{Rank, Region, TransportError};

use crate::context::{Context, ucx_memory_type};
use crate::error::{Error, transport_error};
use crate::library::Library;
use crate::sys;

/// Memory that UCX has registered.
pub(crate) struct MemoryHandle {
    library: &'static Library,
    context: sys::ucp_context_h,
    raw: sys::ucp_mem_h,
}

impl MemoryHandle {
    /// Registers `region` with `context`, which the caller keeps for longer.
    ///
    /// # Safety
    /// The region is memory of this process and stays allocated until the handle has been dropped.
    pub(crate) unsafe fn new(context: &Context, region: Region) -> Result<MemoryHandle, Error> {
        let library = context.library();
        let fields = sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS
            | sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH
            | sys::UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        let params = sys::ucp_mem_map_params_t {
            field_mask: u64::from(fields),
            address: region.address.0 as *mut _,
            length: region.len_bytes,
            memory_type: ucx_memory_type(region.memory),
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context lives; the caller vouches for the region.
        let status = unsafe { library.api().ucp_mem_map(context.raw(), &params, &mut raw) };
        Error::check(library, "ucp_mem_map", status)?;
        Ok(MemoryHandle { library, context: context.raw(), raw })
    }

    /// The key for peers, as bytes to send to them.
    pub(crate) fn packed_key(&self) -> Result<Vec<u8>, Error> {
        let api = self.library.api();
        let (mut buffer, mut length) = (ptr::null_mut(), 0);
        // SAFETY: context and memory handle live; both places for results are valid.
        let status = unsafe { api.ucp_rkey_pack(self.context, self.raw, &mut buffer, &mut length) };
        Error::check(self.library, "ucp_rkey_pack", status)?;
        // SAFETY: UCX gave the buffer and its length in bytes.
        let bytes = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec();
        // SAFETY: got from `ucp_rkey_pack`, released once.
        unsafe { api.ucp_rkey_buffer_release(buffer) };
        Ok(bytes)
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; the context outlives it. A failure leaves the memory registered,
        // which nobody can help here.
        unsafe { self.library.api().ucp_mem_unmap(self.context, self.raw) };
    }
}

/// A peer's key, unpacked for one endpoint.
pub(crate) struct RemoteKey {
    library: &'static Library,
    raw: sys::ucp_rkey_h,
    /// The endpoint it is for, by number.
    pub(crate) endpoint: u32,
}

impl RemoteKey {
    /// Unpacks what [`MemoryHandle::packed_key`] gave at the peer behind the endpoint.
    pub(crate) fn unpack(
        library: &'static Library,
        raw_endpoint: sys::ucp_ep_h,
        endpoint: u32,
        peer: Rank,
        packed: &[u8],
    ) -> Result<RemoteKey, TransportError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the endpoint is usable; the bytes are a packed key, as the peer sent it.
        let status = unsafe {
            library.api().ucp_ep_rkey_unpack(raw_endpoint, packed.as_ptr().cast(), &mut raw)
        };
        match status {
            sys::UCS_OK => Ok(RemoteKey { library, raw, endpoint }),
            status => Err(transport_error(library, "ucp_ep_rkey_unpack", peer, status)),
        }
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::ucp_rkey_h {
        self.raw
    }
}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // SAFETY: unpacked in `unpack`, destroyed once, before the worker.
        unsafe { self.library.api().ucp_rkey_destroy(self.raw) };
    }
}
