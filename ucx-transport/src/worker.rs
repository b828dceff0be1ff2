//! The UCP worker: progress, and the address by which peers find this process.

use std::ptr;
use std::slice;

use crate::context::Context;
use crate::error::Error;
use crate::library::Library;
use crate::sys;

/// A worker.
///
/// Its thread mode is *serialized*: any thread, one at a time, which `&mut` already says. UCX then takes no locks.
pub(crate) struct Worker {
    library: &'static Library,
    raw: sys::ucp_worker_h,
    address: Box<[u8]>,
}

impl Worker {
    /// A worker of `context`, which the caller keeps for longer.
    pub(crate) fn new(context: &Context) -> Result<Worker, Error> {
        let library = context.library();
        let fields = sys::UCP_WORKER_PARAM_FIELD_THREAD_MODE | sys::UCP_WORKER_PARAM_FIELD_FLAGS;
        let params = sys::ucp_worker_params_t {
            field_mask: u64::from(fields),
            thread_mode: sys::UCS_THREAD_MODE_SERIALIZED,
            flags: u64::from(sys::UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK),
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context lives; parameters and the place for the result are valid.
        let status = unsafe { library.api().ucp_worker_create(context.raw(), &params, &mut raw) };
        Error::check(library, "ucp_worker_create", status)?;
        let mut worker = Worker { library, raw, address: Box::default() };
        worker.address = worker.query_address()?;
        Ok(worker)
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::ucp_worker_h {
        self.raw
    }

    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Lets UCX work; whether anything happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        // SAFETY: the worker lives, and `&mut` means that no other thread uses it.
        unsafe { self.library.api().ucp_worker_progress(self.raw) != 0 }
    }

    fn query_address(&self) -> Result<Box<[u8]>, Error> {
        let api = self.library.api();
        let (mut address, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the worker lives; both places for results are valid.
        let status = unsafe { api.ucp_worker_get_address(self.raw, &mut address, &mut length) };
        Error::check(self.library, "ucp_worker_get_address", status)?;
        // SAFETY: UCX gave the address and its length in bytes.
        let bytes = unsafe { slice::from_raw_parts(address.cast::<u8>(), length) }.into();
        // SAFETY: got from this worker, released once.
        unsafe { api.ucp_worker_release_address(self.raw, address) };
        Ok(bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `ucp_worker_create`; endpoints that are left are destroyed with it, without waiting.
        unsafe { self.library.api().ucp_worker_destroy(self.raw) };
    }
}
