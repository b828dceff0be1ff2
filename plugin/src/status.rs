//! Errors to MPI error classes. The only place that does it.

use std::os::raw::c_int;

use hetccl_core::TransportError;
use hetccl_mca::sys;
use hetccl_runtime::Error;

pub(crate) const SUCCESS: c_int = sys::MPI_SUCCESS as c_int;

/// The class of a failed message, copy or reduction.
pub(crate) fn of_transport(error: &TransportError) -> c_int {
    match error {
        TransportError::Truncated { .. } => sys::MPI_ERR_TRUNCATE as c_int,
        // The PML's own code is an MPI error class already, or one of Open MPI's negative ones, which it maps itself.
        TransportError::Failed { operation, native_code, .. } if operation.starts_with("PML") => {
            *native_code
        }
        TransportError::PeerFailed { .. } => hetccl_mca::failed_process_error(),
        TransportError::Unreachable { .. } => sys::MPI_ERR_OTHER as c_int,
        TransportError::GivenUp { class, .. } => *class,
        TransportError::Failed { .. } => sys::MPI_ERR_INTERN as c_int,
    }
}

/// The class of a failed call of a GPU driver.
pub(crate) fn of_gpu(error: &hetccl_runtime::gpu::Error) -> c_int {
    match error {
        hetccl_runtime::gpu::Error::NotDevice { .. } => sys::MPI_ERR_BUFFER as c_int,
        _ => sys::MPI_ERR_INTERN as c_int,
    }
}

/// The class of a failed collective, after telling the user what failed, where and with whom.
pub(crate) fn report(error: &Error) -> c_int {
    hetccl_mca::tell(&error.to_string());
    match error {
        Error::Step { source, .. } => of_transport(source),
        Error::NoAlgorithm { .. } => sys::MPI_ERR_UNSUPPORTED_OPERATION as c_int,
        Error::OutOfMemory { .. } => sys::MPI_ERR_NO_MEM as c_int,
    }
}
