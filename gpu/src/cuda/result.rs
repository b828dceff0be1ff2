//! Finding the driver, and its status codes as errors.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};
use libloading::Library;

use crate::error::Error;
use crate::vendor::Vendor;

const LIBRARY: &str = "libcuda.so.1";

/// Everything that is called here. `cudarc` panics at the first call of a function that the driver doesn't have, so all
/// are looked for first.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRetain",
    "cuCtxCreate_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuMemGetAddressRange_v2",
    "cuStreamCreate",
    "cuStreamWaitEvent",
    "cuStreamBatchMemOp_v2",
    "cuStreamQuery",
    "cuStreamWriteValue32_v2",
    "cuStreamGetCaptureInfo_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuGraphAddHostNode",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
    "cuGraphRetainUserObject",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemcpyAsync",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuGetErrorName",
    "cuGetErrorString",
];

/// Loads the driver library for the rest of the process's life.
///
/// # Errors
/// It is not there, or misses a function.
pub(super) fn load() -> Result<(), Error> {
    let missing =
        |reason: String| Error::NoLibrary { vendor: Vendor::Cuda, library: LIBRARY, reason };
    // SAFETY: the driver's initialisers may run in any process that uses it.
    let library = unsafe { Library::new(LIBRARY) }.map_err(|error| missing(error.to_string()))?;
    for &function in FUNCTIONS {
        // SAFETY: only looked up, not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(function.as_bytes()) }.is_err() {
            return Err(Error::TooOld { vendor: Vendor::Cuda, function });
        }
    }
    // cudarc finds the library by its own names; the one that is loaded already answers to them.
    std::mem::forget(library);
    // SAFETY: as above.
    if unsafe { sys::is_culib_present() } {
        Ok(())
    } else {
        Err(missing("it is loaded, but not found again as libcuda.so".to_owned()))
    }
}

/// Loads a function's code to the device, where the driver has a call for that (CUDA 12.4); older ones do it when it is looked up
/// or first launched.
///
/// # Errors
/// Of the driver.
pub(super) fn load_function(function: usize) -> Result<(), Error> {
    type FuncLoad = unsafe extern "C" fn(usize) -> CUresult;
    // SAFETY: `load` has loaded the library for good; this is another reference to it.
    let Ok(library) = (unsafe { Library::new(LIBRARY) }) else { return Ok(()) };
    // SAFETY: `CUresult cuFuncLoad(CUfunction)`.
    let Ok(call) = (unsafe { library.get::<FuncLoad>(b"cuFuncLoad") }) else { return Ok(()) };
    // SAFETY: the caller's function comes from this driver; its context is current.
    check("cuFuncLoad", unsafe { call(function) })
}

/// # Errors
/// Every status but success.
#[inline]
pub(super) fn check(function: &'static str, status: CUresult) -> Result<(), Error> {
    if status == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(function, status)) }
}

#[cold]
pub(super) fn failed(function: &'static str, status: CUresult) -> Error {
    let (mut name, mut explanation) = (std::ptr::null(), std::ptr::null());
    // SAFETY: places for the results, which are null or static strings.
    let (name, text) = unsafe {
        let _ = sys::cuGetErrorName(status, &raw mut name);
        let _ = sys::cuGetErrorString(status, &raw mut explanation);
        (words(name), words(explanation))
    };
    Error::Call { function, code: status as i32, name, text }
}

/// # Safety
/// Null, or a string that lives on.
unsafe fn words(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "no name".to_owned();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
