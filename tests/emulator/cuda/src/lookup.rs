//! Functions by name, and errors in words.

use std::ffi::{c_char, c_void};

use hetccl_emulated_device::abi::{Out, Text};
use hetccl_emulated_device::{Code, entries, symbol};

const PER_THREAD: u64 = 2;
const FOUND: i32 = 0;
const SYMBOL_NOT_FOUND: i32 = 1;

/// Functions that had other versions before: the CUDA version from which on the suffix is meant.
const VERSIONS: &[(&str, i32, &str)] = &[
    ("cuCtxCreate", 3020, "_v2"),
    ("cuCtxCreate", 11040, "_v3"),
    ("cuDeviceGetUuid", 11040, "_v2"),
    ("cuGetProcAddress", 12000, "_v2"),
    ("cuStreamBeginCapture", 10010, "_v2"),
    ("cuStreamGetCaptureInfo", 11030, "_v2"),
    ("cuStreamWaitValue32", 11070, "_v2"),
    ("cuStreamWaitValue64", 11070, "_v2"),
    ("cuStreamWriteValue32", 11070, "_v2"),
    ("cuStreamWriteValue64", 11070, "_v2"),
    ("cuStreamBatchMemOp", 11070, "_v2"),
];

/// The function that `name` means to a program of CUDA `version`.
fn lookup(name: &str, version: i32, flags: u64) -> Option<usize> {
    if !name.starts_with("cu") {
        return None;
    }
    let listed = VERSIONS
        .iter()
        .rev()
        .find(|(of, from, _)| *of == name && version >= *from)
        .map(|(_, _, suffix)| *suffix);
    let suffixes: &[&str] = match &listed {
        Some(suffix) => &[suffix, ""],
        None if VERSIONS.iter().any(|(of, _, _)| *of == name) => &[""],
        None => &["_v2", ""],
    };
    let endings: &[&str] = if flags & PER_THREAD != 0 { &["_ptsz", "_ptds", ""] } else { &[""] };
    let mut names = endings
        .iter()
        .flat_map(|ending| suffixes.iter().map(move |suffix| format!("{name}{suffix}{ending}")));
    names.find_map(|name| symbol::find(&name))
}

macro_rules! errors {
    ($($number:literal $name:ident $text:literal;)*) => {
        /// Name and explanation of an error code, each with its 0.
        fn error(code: i32) -> Option<(&'static str, &'static str)> {
            match code {
                $($number => Some((concat!(stringify!($name), "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

errors! {
    0 CUDA_SUCCESS "no error";
    1 CUDA_ERROR_INVALID_VALUE "invalid argument";
    2 CUDA_ERROR_OUT_OF_MEMORY "out of memory";
    3 CUDA_ERROR_NOT_INITIALIZED "initialization error";
    4 CUDA_ERROR_DEINITIALIZED "driver shutting down";
    100 CUDA_ERROR_NO_DEVICE "no CUDA-capable device is detected";
    101 CUDA_ERROR_INVALID_DEVICE "invalid device ordinal";
    200 CUDA_ERROR_INVALID_IMAGE "device kernel image is invalid";
    201 CUDA_ERROR_INVALID_CONTEXT "invalid device context";
    205 CUDA_ERROR_MAP_FAILED "mapping of buffer object failed";
    209 CUDA_ERROR_NO_BINARY_FOR_GPU "no kernel image is available for execution on the device";
    217 CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access is not supported between these two devices";
    218 CUDA_ERROR_INVALID_PTX "a PTX JIT compilation failed";
    301 CUDA_ERROR_FILE_NOT_FOUND "file not found";
    304 CUDA_ERROR_OPERATING_SYSTEM "OS call failed or operation not supported on this OS";
    401 CUDA_ERROR_ILLEGAL_STATE "the operation cannot be performed in the present state";
    400 CUDA_ERROR_INVALID_HANDLE "invalid resource handle";
    500 CUDA_ERROR_NOT_FOUND "named symbol not found";
    600 CUDA_ERROR_NOT_READY "device not ready";
    700 CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered";
    701 CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "too many resources requested for launch";
    702 CUDA_ERROR_LAUNCH_TIMEOUT "the launch timed out and was terminated";
    704 CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled";
    705 CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access has not been enabled";
    708 CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "cannot set while device is active in this process";
    709 CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed";
    712 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped";
    713 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region";
    719 CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure";
    800 CUDA_ERROR_NOT_PERMITTED "operation not permitted";
    801 CUDA_ERROR_NOT_SUPPORTED "operation not supported";
    900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing";
    901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture";
    902 CUDA_ERROR_STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences";
    903 CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began";
    904 CUDA_ERROR_STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work";
    905 CUDA_ERROR_STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream";
    906 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "operation would make the legacy stream depend on a capturing blocking stream";
    907 CUDA_ERROR_CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream";
    908 CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "attempt to terminate a thread-local capture sequence from another thread";
    999 CUDA_ERROR_UNKNOWN "unknown error";
}

entries! {
    fn cuGetErrorName(code: i32, name: Out<*const c_char>) {
        let Some((found, _)) = error(code) else {
            name.set(std::ptr::null())?;
            return Err(Code::INVALID_VALUE);
        };
        name.set(found.as_ptr().cast())
    }

    fn cuGetErrorString(code: i32, text: Out<*const c_char>) {
        let Some((_, found)) = error(code) else {
            text.set(std::ptr::null())?;
            return Err(Code::INVALID_VALUE);
        };
        text.set(found.as_ptr().cast())
    }

    fn cuGetProcAddress(name: Text, function: Out<usize>, version: i32, flags: u64) {
        let found = lookup(name.get()?, version, flags);
        function.set(found.unwrap_or(0))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    }

    fn cuGetProcAddress_v2(name: Text, function: Out<usize>, version: i32, flags: u64, status: Out<i32>) {
        let found = lookup(name.get()?, version, flags);
        function.set(found.unwrap_or(0))?;
        status.set_if_wanted(if found.is_some() { FOUND } else { SYMBOL_NOT_FOUND });
        found.map(drop).ok_or(Code::NOT_FOUND)
    }

    fn cuGetExportTable(_table: Out<*const c_void>, _id: Out<[u8; 16]>) {
        Err(Code::NOT_FOUND)
    }
}
