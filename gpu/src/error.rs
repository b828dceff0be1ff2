//! What can go wrong with a driver.

use hetccl_core::TransportError;

use crate::vendor::Vendor;

/// A driver that can't be used, or a call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No driver library.
    #[error("no {} driver: {library} could not be loaded ({reason})", vendor.name())]
    NoLibrary {
        /// Whose.
        vendor: Vendor,
        /// The file that was looked for.
        library: &'static str,
        /// The loader's words.
        reason: String,
    },
    /// The driver is older than what hetccl needs.
    #[error("the {} driver has no {function}: it is too old, install a newer one", vendor.name())]
    TooOld {
        /// Whose.
        vendor: Vendor,
        /// The missing function.
        function: &'static str,
    },
    /// A call failed.
    #[error("{function} failed: {name} ({code}): {text}")]
    Call {
        /// The driver's function.
        function: &'static str,
        /// Its error code.
        code: i32,
        /// The code's name, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// The driver's explanation.
        text: String,
    },
    /// The driver is there, and no device.
    #[error("the {} driver finds no device", vendor.name())]
    NoDevice {
        /// Whose.
        vendor: Vendor,
    },
    /// The reduction kernels can't be had for a device.
    #[error("no reduction kernels for this {} device: {reason}", vendor.name())]
    NoKernels {
        /// Whose.
        vendor: Vendor,
        /// What was looked for.
        reason: String,
    },
    /// The vendor's driver has no way to do something.
    #[error("the {} driver has no way of {what}", vendor.name())]
    Unsupported {
        /// Whose.
        vendor: Vendor,
        /// What was wanted.
        what: &'static str,
    },
    /// Host memory that kernels can't reach.
    #[error(
        "host memory at {address:#x} is not pinned, so the device can't use it: allocate it with the driver or register it"
    )]
    NotPinned {
        /// The address.
        address: usize,
    },
    /// An address that no driver knows as device memory.
    #[error(
        "address {address:#x} is not device memory (any more): was it freed before the operation ended?"
    )]
    NotDevice {
        /// The address.
        address: usize,
    },
}

impl From<Error> for TransportError {
    fn from(error: Error) -> Self {
        let (operation, native_code) = match &error {
            Error::Call { function, code, .. } => (*function, *code),
            _ => ("GPU driver", 0),
        };
        TransportError::Failed { operation, native_code, reason: error.to_string() }
    }
}
