//! What happens around each call: the emulator is started, and errors are kept.

use std::cell::Cell;

use hetccl_emulated_device::{Code, Vendor, abi, graph, start};

/// Calls that may wait or allocate: recordings of other streams do not bear them.
const UNSAFE_IN_CAPTURE: &[&str] = &[
    "hipDeviceSynchronize",
    "hipEventQuery",
    "hipEventSynchronize",
    "hipFree",
    "hipHostFree",
    "hipHostMalloc",
    "hipHostRegister",
    "hipHostUnregister",
    "hipIpcCloseMemHandle",
    "hipIpcOpenMemHandle",
    "hipMalloc",
    "hipMallocManaged",
    "hipMemcpy",
    "hipModuleLoad",
    "hipModuleLoadData",
    "hipModuleUnload",
    "hipStreamQuery",
    "hipStreamSynchronize",
];

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
    static DEFAULT_IS_PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The way in of each function.
pub(crate) fn enter(function: &'static str, body: impl FnOnce() -> Result<(), Code>) -> i32 {
    start(Vendor::Hip);
    let code = abi::enter(function, || {
        if UNSAFE_IN_CAPTURE.contains(&function) {
            graph::check_call()?;
        }
        body()
    });
    if code != 0 && !matches!(function, "hipGetLastError" | "hipPeekAtLastError") {
        LAST_ERROR.set(code);
    }
    code
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

/// The last error of this thread; `forget` makes it success.
pub(crate) fn last_error(forget: bool) -> i32 {
    if forget { LAST_ERROR.take() } else { LAST_ERROR.get() }
}
