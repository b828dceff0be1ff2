//! The C entry points. One macro makes the three of a collective from its translation.

use std::os::raw::c_int;

use hetccl_mca::sys;

use crate::module::{self, ModuleState};
use crate::prepared::Prepared;

/// Runs a translation and what comes after it behind a panic boundary: a panic becomes an MPI error on this
/// communicator, not an abort of the program.
///
/// # Safety
/// `module` is one of ours and live.
pub(crate) unsafe fn guarded(
    module: *mut sys::mca_coll_base_module_t,
    translate: impl FnOnce(&ModuleState) -> Result<Prepared, c_int>,
    run: impl FnOnce(Prepared) -> c_int,
) -> c_int {
    let call = std::panic::AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        match translate(unsafe { module::state(module) }) {
            Ok(prepared) => run(prepared),
            Err(code) => code,
        }
    });
    std::panic::catch_unwind(call).unwrap_or(sys::MPI_ERR_INTERN as c_int)
}

/// Runs the short way of a call behind the same boundary.
///
/// # Safety
/// `module` is one of ours and live.
#[inline(always)]
pub(crate) unsafe fn quickly(
    module: *mut sys::mca_coll_base_module_t,
    quick: impl FnOnce(&ModuleState) -> Option<c_int>,
) -> Option<c_int> {
    let call = std::panic::AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        quick(unsafe { module::state(module) })
    });
    std::panic::catch_unwind(call).unwrap_or(Some(sys::MPI_ERR_INTERN as c_int))
}

/// `entries! { (argument: type, ...) => translate }` makes `blocking`, `nonblocking` and `persistent` with Open MPI's
/// signatures; `translate(&ModuleState, argument, ...) -> Result<Prepared, c_int>` is unsafe, as it reads the
/// arguments.
///
/// With `quick: path`, the blocking entry asks `path(&ModuleState, argument, ...) -> Option<c_int>` first, which may do it all.
macro_rules! entries {
    (($($name:ident: $type:ty),* $(,)?) => $translate:path, quick: $quick:path) => {
        /// # Safety
        /// Called by Open MPI with arguments that it has checked.
        pub(crate) unsafe extern "C" fn blocking(
            $($name: $type,)*
            comm: *mut hetccl_mca::sys::ompi_communicator_t,
            module: *mut hetccl_mca::sys::mca_coll_base_module_t,
        ) -> std::os::raw::c_int {
            // SAFETY: Open MPI passes our module and the program's buffers.
            unsafe {
                match $crate::entry::quickly(module, |state| $quick(state, $($name),*)) {
                    Some(code) => code,
                    None => the_usual_way($($name,)* comm, module),
                }
            }
        }

        $crate::entry::entries! { @usual the_usual_way, ($($name: $type),*) => $translate }
    };

    (($($name:ident: $type:ty),* $(,)?) => $translate:path) => {
        $crate::entry::entries! { @usual blocking, ($($name: $type),*) => $translate }
    };

    (@usual $blocking:ident, ($($name:ident: $type:ty),*) => $translate:path) => {
        /// # Safety
        /// Called by Open MPI with arguments that it has checked.
        #[inline(never)]
        pub(crate) unsafe extern "C" fn $blocking(
            $($name: $type,)*
            _comm: *mut hetccl_mca::sys::ompi_communicator_t,
            module: *mut hetccl_mca::sys::mca_coll_base_module_t,
        ) -> std::os::raw::c_int {
            // SAFETY: Open MPI passes our module and the program's buffers.
            unsafe {
                $crate::entry::guarded(
                    module,
                    |state| {
                        $translate(state, $($name),*)
                            .inspect_err(|_| $crate::watch::failed_at_once(state))
                    },
                    |prepared| $crate::execute::blocking(module, prepared),
                )
            }
        }

        /// # Safety
        /// Called by Open MPI with arguments that it has checked.
        pub(crate) unsafe extern "C" fn nonblocking(
            $($name: $type,)*
            _comm: *mut hetccl_mca::sys::ompi_communicator_t,
            request: *mut *mut hetccl_mca::sys::ompi_request_t,
            module: *mut hetccl_mca::sys::mca_coll_base_module_t,
        ) -> std::os::raw::c_int {
            // SAFETY: Open MPI passes our module and the program's buffers.
            unsafe {
                $crate::entry::guarded(
                    module,
                    |state| $translate(state, $($name),*),
                    |prepared| $crate::execute::nonblocking(module, prepared, request),
                )
            }
        }

        /// # Safety
        /// Called by Open MPI with arguments that it has checked.
        pub(crate) unsafe extern "C" fn persistent(
            $($name: $type,)*
            _comm: *mut hetccl_mca::sys::ompi_communicator_t,
            _info: *mut hetccl_mca::sys::ompi_info_t,
            request: *mut *mut hetccl_mca::sys::ompi_request_t,
            module: *mut hetccl_mca::sys::mca_coll_base_module_t,
        ) -> std::os::raw::c_int {
            // SAFETY: Open MPI passes our module and the program's buffers.
            unsafe {
                $crate::entry::guarded(
                    module,
                    |state| $translate(state, $($name),*),
                    |prepared| $crate::execute::persistent(module, prepared, request),
                )
            }
        }
    };
}
pub(crate) use entries;
