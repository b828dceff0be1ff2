//! What happens around each call, and Level Zero's results.

use hetccl_emulated_device::{Code, abi};

const FIRST_RESULT: i32 = 0x7000_0000;
const OUT_OF_DEVICE_MEMORY: i32 = 0x7000_0003;
const UNINITIALIZED: i32 = 0x7800_0001;
const UNSUPPORTED_FEATURE: i32 = 0x7800_0003;
const INVALID_ARGUMENT: i32 = 0x7800_0004;
const INVALID_NULL_HANDLE: i32 = 0x7800_0005;
const INVALID_NATIVE_BINARY: i32 = 0x7800_000f;
const INVALID_KERNEL_NAME: i32 = 0x7800_0011;
const UNKNOWN: i32 = 0x7fff_fffe;

/// The way in of each function.
pub(crate) fn enter(function: &'static str, body: impl FnOnce() -> Result<(), Code>) -> i32 {
    result_of(Code(abi::enter(function, body)))
}

/// Level Zero has no default streams.
#[allow(dead_code)] // `entries!` needs the name
pub(crate) fn with_per_thread_default(body: impl FnOnce() -> i32) -> i32 {
    body()
}

/// `ze_result_t`.
fn result_of(code: Code) -> i32 {
    match code {
        Code(0) => 0,
        Code::NOT_READY => 1,
        Code::OUT_OF_MEMORY => OUT_OF_DEVICE_MEMORY,
        Code::NOT_INITIALIZED | Code::NO_DEVICE => UNINITIALIZED,
        Code::NOT_SUPPORTED => UNSUPPORTED_FEATURE,
        Code::INVALID_VALUE | Code::INVALID_CONTEXT | Code::INVALID_DEVICE => INVALID_ARGUMENT,
        Code::INVALID_HANDLE => INVALID_NULL_HANDLE,
        Code::INVALID_IMAGE => INVALID_NATIVE_BINARY,
        Code::NOT_FOUND => INVALID_KERNEL_NAME,
        Code(result) if result >= FIRST_RESULT => result,
        _ => UNKNOWN,
    }
}
