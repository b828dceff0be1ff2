//! Communicators, memory, errors.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{CommHandle, Config, UniqueId};
use crate::api::communicator as comm_api;

// SAFETY of the calls below: the caller's pointers are what NCCL's documentation asks for.
crate::entries! {
    own {
        fn ncclGetVersion(version: *mut c_int) {
            // SAFETY: see above.
            unsafe { comm_api::version(crate::LIBRARY, version) }
        }
        fn ncclGetUniqueId(id: *mut UniqueId) {
            // SAFETY: see above.
            unsafe { comm_api::unique_id(id) }
        }
        fn ncclCommInitRank(comm: *mut CommHandle, size: c_int, id: UniqueId, rank: c_int) {
            // SAFETY: see above.
            unsafe { comm_api::init_rank(crate::LIBRARY, comm, size, &[id], rank, std::ptr::null()) }
        }
        fn ncclCommInitRankConfig(comm: *mut CommHandle, size: c_int, id: UniqueId, rank: c_int, config: *const Config) {
            // SAFETY: see above.
            unsafe { comm_api::init_rank(crate::LIBRARY, comm, size, &[id], rank, config) }
        }
        fn ncclCommInitRankScalable(comm: *mut CommHandle, size: c_int, rank: c_int, ids_len: c_int, ids: *const UniqueId, config: *const Config) {
            // SAFETY: see above.
            unsafe {
                let ids = comm_api::ids(ids, ids_len)?;
                comm_api::init_rank(crate::LIBRARY, comm, size, ids, rank, config)
            }
        }
        fn ncclCommInitAll(comms: *mut CommHandle, size: c_int, devices: *const c_int) {
            // SAFETY: see above.
            unsafe { comm_api::init_all(crate::LIBRARY, comms, size, devices) }
        }
        fn ncclCommSplit(comm: CommHandle, color: c_int, key: c_int, new: *mut CommHandle, config: *const Config) {
            // SAFETY: see above.
            unsafe { comm_api::split(comm, color, key, new, config) }
        }
        fn ncclCommShrink(comm: CommHandle, excluded: *mut c_int, excluded_len: c_int, new: *mut CommHandle, config: *const Config, flags: c_int) {
            // SAFETY: see above.
            unsafe { comm_api::shrink(comm, excluded, excluded_len, new, config, flags) }
        }
        fn ncclCommFinalize(comm: CommHandle) {
            comm_api::finalize(comm)
        }
        fn ncclCommDestroy(comm: CommHandle) {
            comm_api::destroy(comm)
        }
        fn ncclCommAbort(comm: CommHandle) {
            comm_api::abort(comm)
        }
        fn ncclCommGetAsyncError(comm: CommHandle, error: *mut c_int) {
            // SAFETY: see above.
            unsafe { comm_api::async_error(comm, error) }
        }
        fn ncclCommCount(comm: CommHandle, count: *mut c_int) {
            // SAFETY: see above.
            unsafe { comm_api::count(comm, count) }
        }
        fn ncclCommCuDevice(comm: CommHandle, device: *mut c_int) {
            // SAFETY: see above.
            unsafe { comm_api::device(comm, device) }
        }
        fn ncclCommUserRank(comm: CommHandle, rank: *mut c_int) {
            // SAFETY: see above.
            unsafe { comm_api::rank(comm, rank) }
        }
        fn ncclCommRegister(comm: CommHandle, buffer: *mut c_void, bytes: usize, handle: *mut *mut c_void) {
            // SAFETY: see above.
            unsafe { comm_api::register(comm, buffer, bytes, handle) }
        }
        fn ncclCommDeregister(comm: CommHandle, handle: *mut c_void) {
            comm_api::deregister(comm, handle)
        }
        fn ncclMemAlloc(memory: *mut *mut c_void, bytes: usize) {
            // SAFETY: see above.
            unsafe { comm_api::allocate(crate::LIBRARY, memory, bytes) }
        }
        fn ncclMemFree(memory: *mut c_void) {
            comm_api::free(crate::LIBRARY, memory)
        }
    }
    plain {
        fn ncclGetErrorString(code: c_int) -> *const c_char {
            comm_api::error_text(code).as_ptr()
        }
        fn ncclGetLastError(_comm: CommHandle) -> *const c_char {
            comm_api::last_error()
        }
        fn ncclResetDebugInit() -> () {}
        fn ncclResetDebugInitInternal() -> () {}
    }
    refused {
        ncclCommGetUniqueId ncclCommGrow ncclCommMemStats ncclCommQueryProperties ncclCommResume ncclCommRevoke
        ncclCommSuspend ncclCommWindowRegister ncclCommWindowDeregister ncclWinGetUserPtr ncclSetEncryption
        ncclParamBind ncclParamDumpAll ncclParamGet ncclParamGetAllParameterKeys ncclParamGetI16 ncclParamGetI32
        ncclParamGetI64 ncclParamGetI8 ncclParamGetParameter ncclParamGetStr ncclParamGetU16 ncclParamGetU32
        ncclParamGetU64 ncclParamGetU8
    }
}
