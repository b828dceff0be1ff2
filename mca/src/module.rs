//! Modules: the object that Open MPI keeps per communicator and component.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::sys;

/// A module that carries the plugin's state of one communicator.
#[derive(Clone, Copy, Debug)]
pub struct ModuleRef(NonNull<sys::hetccl_module_t>);

impl ModuleRef {
    /// Wraps a module that Open MPI hands back.
    ///
    /// # Safety
    /// `raw` was made by [`new_module`] and Open MPI still has it.
    pub unsafe fn from_raw(raw: *mut sys::mca_coll_base_module_t) -> ModuleRef {
        ModuleRef(NonNull::new(raw.cast()).expect("Open MPI passes a module"))
    }

    /// The state given to [`new_module`].
    pub fn state(self) -> *mut c_void {
        // SAFETY: the module is live (`from_raw`).
        unsafe { (*self.0.as_ptr()).state }
    }

    /// Lets the module answer `MPIX_Comm_agree` in a job whose processes don't fail, where the interface has agreements.
    pub fn agree_without_failures(self) {
        // SAFETY: the module is live (`from_raw`).
        unsafe { sys::hetccl_module_agree_without_failures(self.table()) }
    }

    /// The function table, to be filled before Open MPI gets the module.
    pub fn table(self) -> *mut sys::mca_coll_base_module_t {
        self.0.as_ptr().cast()
    }
}

/// A new module with one reference. `drop` is called with `state` when Open MPI lets go of it; all modules of a
/// process have the same `drop`. `None` when there is no memory.
///
/// # Safety
/// `drop` may be called with `state`, once, from any thread that calls MPI.
pub unsafe fn new_module(
    drop: unsafe extern "C" fn(*mut c_void),
    state: *mut c_void,
) -> Option<ModuleRef> {
    // SAFETY: makes an object of our own class; the caller vouches for `drop`.
    NonNull::new(unsafe { sys::hetccl_module_new(Some(drop), state) }).map(ModuleRef)
}
