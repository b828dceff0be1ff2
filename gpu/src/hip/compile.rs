//! Kernels for whatever AMD device is there, compiled by HIP's run-time compiler (`libhiprtc.so`, part of ROCm).
//!
//! Source: HIP RTC reference; function names there.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

use crate::error::Error;
use crate::vendor::Vendor;

const LIBRARIES: [&str; 4] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"];
const SUCCESS: c_int = 0;

/// `hiprtcProgram`.
type Program = *mut std::ffi::c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Fill = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// Compiles HIP source for the current device.
///
/// # Errors
/// [`Error::NoKernels`]: no compiler, or its messages.
pub(super) fn compile(source: &CStr) -> Result<Vec<u8>, Error> {
    let no_kernels = |reason: String| Error::NoKernels { vendor: Vendor::Rocm, reason };
    let mut reason = String::new();
    for name in LIBRARIES {
        // SAFETY: the library's initialisers may run in any process that uses HIP.
        match unsafe { Library::new(name) } {
            // SAFETY: as above; the functions are called as the reference says.
            Ok(library) => return unsafe { compile_with(&library, source) }.map_err(no_kernels),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(no_kernels(format!("libhiprtc.so (.7, .6, .5) could not be loaded: {reason}")))
}

/// # Safety
/// The library is HIP's run-time compiler.
unsafe fn compile_with(library: &Library, source: &CStr) -> Result<Vec<u8>, String> {
    let missing = |error: libloading::Error| error.to_string();
    let none = std::ptr::null::<*const c_char>();
    let mut program: Program = std::ptr::null_mut();
    let options = [c"-O3".as_ptr(), c"-std=c++17".as_ptr()];
    // SAFETY: the caller's promise; signatures are the reference's, sizes are asked for before they are used.
    unsafe {
        let create = library.get::<Create>(b"hiprtcCreateProgram\0").map_err(missing)?;
        let compile = library.get::<Compile>(b"hiprtcCompileProgram\0").map_err(missing)?;
        let code_size = library.get::<Size>(b"hiprtcGetCodeSize\0").map_err(missing)?;
        let code = library.get::<Fill>(b"hiprtcGetCode\0").map_err(missing)?;
        let log_size = library.get::<Size>(b"hiprtcGetProgramLogSize\0").map_err(missing)?;
        let log = library.get::<Fill>(b"hiprtcGetProgramLog\0").map_err(missing)?;
        let destroy = library.get::<Destroy>(b"hiprtcDestroyProgram\0").map_err(missing)?;
        let name = c"hetccl_reduce.hip".as_ptr();
        let status = create(&raw mut program, source.as_ptr(), name, 0, none, none);
        if status != SUCCESS {
            return Err(format!("hiprtcCreateProgram failed with {status}"));
        }
        let status = compile(program, options.len() as c_int, options.as_ptr());
        let (size, fill) = if status == SUCCESS { (code_size, code) } else { (log_size, log) };
        let result = take(program, *size, *fill);
        destroy(&raw mut program);
        match result {
            Ok(bytes) if status == SUCCESS => Ok(bytes),
            Ok(bytes) => Err(format!(
                "hiprtcCompileProgram failed with {status}: {}",
                String::from_utf8_lossy(&bytes)
            )),
            Err(status) => Err(format!("the compiled program can't be had, status {status}")),
        }
    }
}

/// # Safety
/// `size` says how much `fill` writes for this program.
unsafe fn take(program: Program, size: Size, fill: Fill) -> Result<Vec<u8>, c_int> {
    let mut len = 0;
    // SAFETY: a place for the result.
    let status = unsafe { size(program, &raw mut len) };
    let mut bytes = vec![0u8; len];
    if status != SUCCESS {
        return Err(status);
    }
    // SAFETY: the caller's promise.
    match unsafe { fill(program, bytes.as_mut_ptr().cast()) } {
        SUCCESS => Ok(bytes),
        status => Err(status),
    }
}
