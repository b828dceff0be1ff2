//! HIP's run-time compiler, for emulated devices: the "code object" of a program is its source.
//!
//! Emulated devices run the kernels that the host's compiler made (see `hetccl-emulated-device`), so all that must hold
//! here is that a program goes through the calls that the real compiler has. Source: HIP RTC reference.

use std::ffi::{CStr, c_char, c_int};

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;

/// A program under compilation.
struct Program {
    source: Vec<u8>,
    compiled: bool,
}

/// `hiprtcCreateProgram`.
///
/// # Safety
/// `source` is a string, `program` a place for the result; the headers are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    program: *mut *mut std::ffi::c_void,
    source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _contents: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    if program.is_null() || source.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    let source = unsafe { CStr::from_ptr(source) }.to_bytes_with_nul().to_vec();
    let created = Box::new(Program { source, compiled: false });
    // SAFETY: the caller's promise.
    unsafe { *program = Box::into_raw(created).cast() };
    SUCCESS
}

/// # Safety
/// Null, or made by [`hiprtcCreateProgram`] and not destroyed.
unsafe fn program<'a>(raw: *mut std::ffi::c_void) -> Option<&'a mut Program> {
    // SAFETY: the caller's promise.
    unsafe { raw.cast::<Program>().as_mut() }
}

/// `hiprtcCompileProgram`.
///
/// # Safety
/// A live program; the options are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCompileProgram(
    raw: *mut std::ffi::c_void,
    _options_len: c_int,
    _options: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { program(raw) } {
        Some(program) => {
            program.compiled = true;
            SUCCESS
        }
        None => INVALID_INPUT,
    }
}

/// `hiprtcGetCodeSize`.
///
/// # Safety
/// A live program and a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCodeSize(raw: *mut std::ffi::c_void, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { program(raw) } {
        Some(program) if program.compiled && !size.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { *size = program.source.len() };
            SUCCESS
        }
        _ => INVALID_INPUT,
    }
}

/// `hiprtcGetCode`.
///
/// # Safety
/// A live program and room for its code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCode(raw: *mut std::ffi::c_void, code: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { program(raw) } {
        Some(program) if program.compiled && !code.is_null() => {
            // SAFETY: the caller has asked for the size.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    program.source.as_ptr(),
                    code.cast(),
                    program.source.len(),
                );
            }
            SUCCESS
        }
        _ => INVALID_INPUT,
    }
}

/// `hiprtcGetProgramLogSize`: the log is empty.
///
/// # Safety
/// A place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLogSize(
    _raw: *mut std::ffi::c_void,
    size: *mut usize,
) -> c_int {
    if size.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    unsafe { *size = 1 };
    SUCCESS
}

/// `hiprtcGetProgramLog`.
///
/// # Safety
/// Room for the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLog(
    _raw: *mut std::ffi::c_void,
    log: *mut c_char,
) -> c_int {
    if log.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    unsafe { *log = 0 };
    SUCCESS
}

/// `hiprtcDestroyProgram`.
///
/// # Safety
/// The place of a live program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcDestroyProgram(raw: *mut *mut std::ffi::c_void) -> c_int {
    if raw.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise; made by `hiprtcCreateProgram`.
    unsafe {
        if (*raw).is_null() {
            return INVALID_INPUT;
        }
        drop(Box::from_raw((*raw).cast::<Program>()));
        *raw = std::ptr::null_mut();
    }
    SUCCESS
}
