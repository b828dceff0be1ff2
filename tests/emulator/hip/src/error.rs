//! Errors in words, the last one, and functions by name.

use std::ffi::{CStr, c_char};

use hetccl_emulated_device::abi::{Out, Text};
use hetccl_emulated_device::{Code, entries, symbol};

use crate::entry::last_error;

macro_rules! errors {
    ($($number:literal $name:ident $text:literal;)*) => {
        /// Name and explanation of an error code.
        fn error(code: i32) -> (&'static CStr, &'static CStr) {
            let (name, text) = match code {
                $($number => (concat!(stringify!($name), "\0"), concat!($text, "\0")),)*
                _ => ("hipErrorUnknown\0", "unknown error\0"),
            };
            let terminated = |text: &'static str| CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default();
            (terminated(name), terminated(text))
        }
    };
}

errors! {
    0 hipSuccess "no error";
    1 hipErrorInvalidValue "invalid argument";
    2 hipErrorOutOfMemory "out of memory";
    3 hipErrorNotInitialized "initialization error";
    4 hipErrorDeinitialized "driver shutting down";
    9 hipErrorInvalidConfiguration "invalid configuration argument";
    17 hipErrorInvalidDevicePointer "invalid device pointer";
    21 hipErrorInvalidMemcpyDirection "invalid copy direction for memcpy";
    98 hipErrorInvalidDeviceFunction "invalid device function";
    100 hipErrorNoDevice "no ROCm-capable device is detected";
    101 hipErrorInvalidDevice "invalid device ordinal";
    200 hipErrorInvalidImage "device kernel image is invalid";
    201 hipErrorInvalidContext "invalid device context";
    205 hipErrorMapFailed "mapping of buffer object failed";
    209 hipErrorNoBinaryForGpu "no kernel image is available for execution on the device";
    301 hipErrorFileNotFound "file not found";
    304 hipErrorOperatingSystem "OS call failed or operation not supported on this OS";
    400 hipErrorInvalidHandle "invalid resource handle";
    500 hipErrorNotFound "named symbol not found";
    600 hipErrorNotReady "device not ready";
    700 hipErrorIllegalAddress "an illegal memory access was encountered";
    704 hipErrorPeerAccessAlreadyEnabled "peer access is already enabled";
    705 hipErrorPeerAccessNotEnabled "peer access has not been enabled";
    709 hipErrorContextIsDestroyed "context is destroyed";
    712 hipErrorHostMemoryAlreadyRegistered "part or all of the requested memory range is already mapped";
    713 hipErrorHostMemoryNotRegistered "pointer does not correspond to a registered memory region";
    719 hipErrorLaunchFailure "unspecified launch failure";
    801 hipErrorNotSupported "operation not supported";
    999 hipErrorUnknown "unknown error";
}

/// The error's name.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    error(code).0.as_ptr()
}

/// The error in words.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    error(code).1.as_ptr()
}

entries! {
    fn hipDrvGetErrorName(code: i32, name: Out<*const c_char>) {
        name.set(error(code).0.as_ptr())
    }

    fn hipDrvGetErrorString(code: i32, text: Out<*const c_char>) {
        text.set(error(code).1.as_ptr())
    }

    fn hipGetLastError / hipExtGetLastError() {
        match last_error(true) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    fn hipPeekAtLastError() {
        match last_error(false) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    fn hipGetProcAddress(name: Text, function: Out<usize>, _version: i32, flags: u64, status: Out<i32>) {
        const PER_THREAD: u64 = 2;
        let name = name.get()?;
        let per_thread = if flags & PER_THREAD != 0 { symbol::find(&format!("{name}_spt")) } else { None };
        let found = per_thread.or_else(|| symbol::find(name)).filter(|_| name.starts_with("hip"));
        function.set(found.unwrap_or(0))?;
        status.set_if_wanted(i32::from(found.is_none()));
        found.map(drop).ok_or(Code::INVALID_VALUE)
    }
}
