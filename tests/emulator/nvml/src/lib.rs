//! `libnvidia-ml.so.1` for emulated devices: there, so that what is linked with it loads (UCX's CUDA modules), and without
//! a device that could be managed.

use std::ffi::{CStr, c_char, c_int};

/// `NVML_ERROR_DRIVER_NOT_LOADED`.
const DRIVER_NOT_LOADED: c_int = 9;
const WORDS: &CStr = c"Driver Not Loaded";

/// Refuses.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    DRIVER_NOT_LOADED
}

/// The words for the one status that is ever given.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_: c_int) -> *const c_char {
    WORDS.as_ptr()
}
