//! Endpoints: the connection to one peer, and the news that it has failed.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use hetccl_core::{Rank, TransportError};

use crate::error::transport_error;
use crate::library::Library;
use crate::liveness::Process;
use crate::sys::{self, Started};
use crate::worker::Worker;

/// An endpoint. UCX holds the address of its [`Health`], so that has an allocation of its own.
pub(crate) struct Endpoint {
    library: &'static Library,
    /// Null after the endpoint has been closed.
    raw: sys::ucp_ep_h,
    health: NonNull<Health>,
    /// The peer's process, where it runs on this host.
    process: Option<Process>,
    /// Whether that process has been found to have ended.
    ended: bool,
}

/// Written by UCX's error handler.
struct Health {
    failure: Cell<sys::ucs_status_t>,
}

impl Endpoint {
    /// Connects `worker`, which the caller keeps for longer, to the worker with this address, and looks after `process`.
    pub(crate) fn connect(
        library: &'static Library,
        worker: &mut Worker,
        peer: Rank,
        address: &[u8],
        process: Option<Process>,
    ) -> Result<Endpoint, TransportError> {
        let health = NonNull::from(Box::leak(Box::new(Health { failure: Cell::new(sys::UCS_OK) })));
        let mut endpoint =
            Endpoint { library, raw: ptr::null_mut(), health, process, ended: false };
        let fields = sys::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLER;
        let params = sys::ucp_ep_params_t {
            field_mask: u64::from(fields),
            address: address.as_ptr().cast(),
            err_mode: sys::UCP_ERR_HANDLING_MODE_PEER,
            err_handler: sys::ucp_err_handler_t { cb: Some(failed), arg: health.as_ptr().cast() },
            ..Default::default()
        };
        // SAFETY: the worker lives; the address is a worker's, as its owner published it; the handler's argument lives
        // until the endpoint has been closed and dropped.
        let status =
            unsafe { library.api().ucp_ep_create(worker.raw(), &params, &mut endpoint.raw) };
        match status {
            sys::UCS_OK => Ok(endpoint),
            status => Err(transport_error(library, "ucp_ep_create", peer, status)),
        }
    }

    /// The endpoint for a call into UCX; `None` when it has failed or been closed.
    #[inline]
    pub(crate) fn usable(&self) -> Option<sys::ucp_ep_h> {
        (self.failure() == sys::UCS_OK).then_some(self.raw)
    }

    /// Why the endpoint is of no more use, as a status; success while it is.
    #[inline]
    pub(crate) fn failure(&self) -> sys::ucs_status_t {
        // SAFETY: allocated in `connect`, freed in `drop`, only ever shared.
        unsafe { self.health.as_ref() }.failure.get()
    }

    /// The failure as an error.
    #[cold]
    pub(crate) fn failure_error(&self, peer: Rank) -> TransportError {
        let reason = match self.process {
            Some(process) if self.ended => {
                format!("its process {} on this host has ended", process.pid())
            }
            _ => format!("UCX: {}", self.library.status_text(self.failure())),
        };
        TransportError::PeerFailed { peer, reason }
    }

    /// Whether the endpoint is in use and its peer, on this host, has ended.
    pub(crate) fn has_lost_its_peer(&self) -> bool {
        self.usable().is_some() && self.process.is_some_and(|process| !process.is_alive())
    }

    /// Notes that the peer's process has ended: the endpoint is of no more use.
    pub(crate) fn note_ended(&mut self) {
        if self.failure() == sys::UCS_OK {
            self.ended = true;
            self.note_failure(sys::UCS_ERR_ENDPOINT_TIMEOUT);
        }
    }

    fn note_failure(&self, status: sys::ucs_status_t) {
        // SAFETY: allocated in `connect`, freed in `drop`, only ever shared.
        unsafe { self.health.as_ref() }.failure.set(status);
    }

    /// Starts to close: by force (all that is outstanding is cancelled, nothing is awaited from the peer) where that
    /// is asked for or the endpoint has failed, else after what is outstanding has been flushed.
    ///
    /// The endpoint is of no use afterwards. A request that is returned is the caller's to free.
    pub(crate) fn start_close(&mut self, force: bool) -> Option<NonNull<c_void>> {
        if self.raw.is_null() {
            return None;
        }
        let force = force || self.failure() != sys::UCS_OK;
        let flags = if force { sys::UCP_EP_CLOSE_FLAG_FORCE } else { 0 };
        let params = sys::ucp_request_param_t {
            op_attr_mask: sys::UCP_OP_ATTR_FIELD_FLAGS,
            flags,
            ..Default::default()
        };
        // SAFETY: the endpoint has not been closed before, as its handle is there; the parameters are valid.
        let started =
            sys::started(unsafe { self.library.api().ucp_ep_close_nbx(self.raw, &params) });
        self.raw = ptr::null_mut();
        if self.failure() == sys::UCS_OK {
            self.note_failure(sys::UCS_ERR_NOT_CONNECTED);
        }
        match started {
            Started::Request(request) => Some(request),
            Started::Done | Started::Failed(_) => None,
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: allocated in `connect`. The fabric drops endpoints after the worker, so UCX's handler, which has
        // this address, will not be called again.
        drop(unsafe { Box::from_raw(self.health.as_ptr()) });
    }
}

/// UCX's error handler: the peer is gone, or the way to it.
unsafe extern "C" fn failed(
    health: *mut c_void,
    _endpoint: sys::ucp_ep_h,
    status: sys::ucs_status_t,
) {
    // SAFETY: the argument given in `connect`, which outlives the worker.
    let health = unsafe { &*health.cast::<Health>() };
    if health.failure.get() == sys::UCS_OK {
        health.failure.set(status);
    }
}
