//! Requests: what MPI programs hold of a nonblocking or persistent collective.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::communicator::CommunicatorRef;
use crate::sys;

/// A request with room for the plugin's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(NonNull<sys::hetccl_request_t>);

// SAFETY: the plugin changes a request only under its own lock or through Open MPI's atomic completion.
unsafe impl Send for Request {}

/// Requests that MPI programs have freed. Open MPI touches a persistent request once more after its free function has
/// returned, so memory is never given back, and used again only after many others.
static RETIRED: Mutex<VecDeque<Request>> = Mutex::new(VecDeque::new());

/// How many retired requests there are before the oldest is used again.
const QUARANTINE: usize = 64;

impl Request {
    /// A new request that has not been started; `None` when there is no memory.
    pub fn new(
        communicator: CommunicatorRef,
        persistent: bool,
        start: sys::ompi_request_start_fn_t,
        free: sys::ompi_request_free_fn_t,
    ) -> Option<Request> {
        let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
        let reused = if retired.len() > QUARANTINE { retired.pop_front() } else { None };
        drop(retired);
        let reused = reused.map_or(std::ptr::null_mut(), |request| request.0.as_ptr());
        // SAFETY: makes an object of our own class, or uses one that nobody has any more, for a live communicator.
        let raw = unsafe {
            sys::hetccl_request_new(reused, communicator.as_ptr(), persistent, start, free)
        };
        NonNull::new(raw).map(Request)
    }

    /// Wraps a request that Open MPI hands back.
    ///
    /// # Safety
    /// `raw` was made by [`new`](Request::new) and not retired.
    pub unsafe fn from_raw(raw: *mut sys::ompi_request_t) -> Request {
        Request(NonNull::new(raw.cast()).expect("Open MPI passes a request"))
    }

    /// What MPI programs get.
    pub fn as_mpi(self) -> *mut sys::ompi_request_t {
        self.0.as_ptr().cast()
    }

    /// The plugin's state.
    pub fn state(self) -> *mut c_void {
        // SAFETY: the request is live until `retire`.
        unsafe { (*self.0.as_ptr()).state }
    }

    /// Sets the plugin's state.
    pub fn set_state(self, state: *mut c_void) {
        // SAFETY: the request is live until `retire`; nobody else knows the field.
        unsafe { (*self.0.as_ptr()).state = state }
    }

    /// Marks the request as started.
    pub fn activate(self) {
        // SAFETY: the request is live until `retire`.
        unsafe { sys::hetccl_request_activate(self.0.as_ptr()) }
    }

    /// Completes the request with an MPI error class and wakes whoever waits. May call back into MPI: never under a
    /// lock. The request may be gone afterwards.
    pub fn complete(self, error: i32) {
        // SAFETY: the request is live; the plugin completes each start once.
        unsafe { sys::hetccl_request_complete(self.0.as_ptr(), error) }
    }

    /// Whether the request is complete (or persistent and not started).
    pub fn is_complete(self) -> bool {
        // SAFETY: the request is live until `retire`.
        unsafe { sys::hetccl_request_is_complete(self.0.as_ptr()) }
    }

    /// Ends the request's life.
    ///
    /// # Safety
    /// Nobody but Open MPI, on its way out of the free function, uses the request any more.
    pub unsafe fn retire(self) {
        // SAFETY: the caller's promise.
        unsafe { sys::hetccl_request_retire(self.0.as_ptr()) };
        RETIRED.lock().unwrap_or_else(PoisonError::into_inner).push_back(self);
    }

    /// `MPI_REQUEST_NULL`.
    pub fn null() -> *mut sys::ompi_request_t {
        // SAFETY: the address of a constant of Open MPI's.
        unsafe { sys::hetccl_request_null() }
    }
}
