//! NCCL's own parameters, which hetccl has none of: the vendor's library answers where it is in use.

use std::ffi::{c_char, c_int, c_void};

const NONE: &str = "hetccl has no parameters to be read here: its settings are environment variables, which `hetccl info` lists";

crate::entries! {
    own {}
    both {}
    handed {}
    refused {}
    without {
        fn ncclParamBind(handle: *mut *mut c_void, key: *const c_char) = NONE;
        fn ncclParamGetI8(handle: *mut c_void, value: *mut i8) = NONE;
        fn ncclParamGetI16(handle: *mut c_void, value: *mut i16) = NONE;
        fn ncclParamGetI32(handle: *mut c_void, value: *mut i32) = NONE;
        fn ncclParamGetI64(handle: *mut c_void, value: *mut i64) = NONE;
        fn ncclParamGetU8(handle: *mut c_void, value: *mut u8) = NONE;
        fn ncclParamGetU16(handle: *mut c_void, value: *mut u16) = NONE;
        fn ncclParamGetU32(handle: *mut c_void, value: *mut u32) = NONE;
        fn ncclParamGetU64(handle: *mut c_void, value: *mut u64) = NONE;
        fn ncclParamGetStr(handle: *mut c_void, value: *mut *const c_char) = NONE;
        fn ncclParamGet(handle: *mut c_void, value: *mut c_void, most_bytes: c_int, len: *mut c_int) = NONE;
        fn ncclParamGetParameter(key: *const c_char, value: *mut *const c_char, len: *mut c_int) = NONE;
        fn ncclParamGetAllParameterKeys(table: *mut *mut *const c_char, len: *mut c_int) = NONE;
    }
    plain {}
    asked {
        fn ncclParamDumpAll() -> () {
            let done = crate::entries! { @vendors ncclParamDumpAll () -> () };
            if done.is_none() {
                crate::entry::refuse("ncclParamDumpAll", NONE);
            }
        }
    }
}
