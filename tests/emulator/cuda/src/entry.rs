//! How exported functions are written, and what a stream argument means.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use hetccl_emulated_device::{Code, abi, graph};

/// Calls that may wait or allocate: recordings of other streams do not bear them.
const UNSAFE_IN_CAPTURE: &[&str] = &[
    "cuCtxCreate_v2",
    "cuCtxCreate_v3",
    "cuCtxDestroy_v2",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxReset_v2",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuIpcCloseMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpy",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8_v2",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// Set by `cuInit`.
pub(crate) static INITIALIZED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static DEFAULT_IS_PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The way in of each function.
pub(crate) fn enter(function: &'static str, body: impl FnOnce() -> Result<(), Code>) -> i32 {
    abi::enter(function, || {
        let early =
            matches!(function, "cuInit" | "cuDriverGetVersion") || function.starts_with("cuGet");
        if IN_HOST_FUNCTION.get() && !early {
            return Err(Code::NOT_PERMITTED);
        }
        if !early && !INITIALIZED.load(Ordering::Acquire) {
            return Err(Code::NOT_INITIALIZED);
        }
        if UNSAFE_IN_CAPTURE.contains(&function) {
            graph::check_call()?;
        }
        body()
    })
}

/// Runs a function that programs compiled for per-thread default streams call.
pub(crate) fn with_per_thread_default(body: impl FnOnce() -> i32) -> i32 {
    let before = DEFAULT_IS_PER_THREAD.replace(true);
    let result = body();
    DEFAULT_IS_PER_THREAD.set(before);
    result
}

/// What stream 0 is in this call.
pub(crate) fn default_is_per_thread() -> bool {
    DEFAULT_IS_PER_THREAD.get()
}

/// Runs a function of the program in a stream. It may not call the driver.
pub(crate) fn in_host_function(body: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    body();
    IN_HOST_FUNCTION.set(false);
}
