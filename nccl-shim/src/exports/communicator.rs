//! Communicators, memory, errors.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{CommHandle, Config, Properties, UniqueId};
use crate::api::{communicator as comm_api, memory, parts, window as windows};

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
    }
    both {
        fn ncclCommSplit(comm: CommHandle, color: c_int, key: c_int, new: *mut CommHandle, config: *const Config) {
            // SAFETY: see above.
            unsafe { parts::split(crate::LIBRARY, comm, color, key, new, config) }
        }
        fn ncclCommShrink(comm: CommHandle, excluded: *mut c_int, excluded_len: c_int, new: *mut CommHandle, config: *const Config, flags: c_int) {
            // SAFETY: see above.
            unsafe { parts::shrink(crate::LIBRARY, comm, excluded, excluded_len, new, config, flags) }
        }
        fn ncclCommGrow(comm: CommHandle, size: c_int, id: *const UniqueId, rank: c_int, new: *mut CommHandle, config: *const Config) {
            // SAFETY: see above.
            unsafe { parts::grow(crate::LIBRARY, comm, size, id, rank, new, config) }
        }
        fn ncclCommDestroy(comm: CommHandle) {
            comm_api::destroy(crate::LIBRARY, comm)
        }
        fn ncclCommAbort(comm: CommHandle) {
            comm_api::abort(crate::LIBRARY, comm)
        }
        fn ncclMemAlloc(memory: *mut *mut c_void, bytes: usize) {
            // SAFETY: see above.
            unsafe { memory::allocate(crate::LIBRARY, memory, bytes) }
        }
        fn ncclMemFree(memory: *mut c_void) {
            memory::free(crate::LIBRARY, memory)
        }
    }
    handed {
        fn ncclCommFinalize(comm: CommHandle) by comm {
            comm_api::finalize(comm)
        }
        fn ncclCommGetUniqueId(comm: CommHandle, id: *mut UniqueId) by comm {
            // SAFETY: see above.
            unsafe { parts::grow_id(comm, id) }
        }
        fn ncclCommRevoke(comm: CommHandle, flags: c_int) by comm {
            comm_api::revoke(comm, flags)
        }
        fn ncclCommCount(comm: CommHandle, count: *mut c_int) by comm {
            // SAFETY: see above.
            unsafe { comm_api::count(comm, count) }
        }
        fn ncclCommCuDevice(comm: CommHandle, device: *mut c_int) by comm {
            // SAFETY: see above.
            unsafe { comm_api::device(comm, device) }
        }
        fn ncclCommUserRank(comm: CommHandle, rank: *mut c_int) by comm {
            // SAFETY: see above.
            unsafe { comm_api::rank(comm, rank) }
        }
        fn ncclCommRegister(comm: CommHandle, buffer: *mut c_void, bytes: usize, handle: *mut *mut c_void) by comm {
            // SAFETY: see above.
            unsafe { memory::register(comm, buffer, bytes, handle) }
        }
        fn ncclCommDeregister(comm: CommHandle, handle: *mut c_void) by comm {
            memory::deregister(comm, handle)
        }
        fn ncclCommWindowRegister(comm: CommHandle, buffer: *mut c_void, bytes: usize, window: *mut *mut c_void, flags: c_int) by comm {
            // SAFETY: see above.
            unsafe { windows::register(comm, buffer, bytes, window, flags) }
        }
        fn ncclCommWindowDeregister(comm: CommHandle, window: *mut c_void) by comm {
            windows::deregister(comm, window)
        }
        fn ncclWinGetUserPtr(comm: CommHandle, window: *mut c_void, pointer: *mut *mut c_void) by comm {
            // SAFETY: see above.
            unsafe { windows::user_pointer(comm, window, pointer) }
        }
        fn ncclCommSuspend(comm: CommHandle, flags: c_int) by comm {
            memory::suspend(comm, flags)
        }
        fn ncclCommResume(comm: CommHandle) by comm {
            memory::resume(comm)
        }
        fn ncclCommGetAsyncError(comm: CommHandle, error: *mut c_int) by comm {
            // SAFETY: see above.
            unsafe { comm_api::async_error(comm, error) }
        }
        fn ncclCommMemStats(comm: CommHandle, which: c_int, value: *mut u64) by comm {
            // SAFETY: see above.
            unsafe { memory::memory_statistics(comm, which, value) }
        }
        fn ncclCommQueryProperties(comm: CommHandle, properties: *mut Properties) by comm {
            // SAFETY: see above.
            unsafe { comm_api::properties(comm, properties) }
        }
    }
    refused {}
    without {
        fn ncclSetEncryption(config: *const c_void) =
            "hetccl does not encrypt what ranks tell each other: use a network that does, or the vendor's library";
    }
    plain {
        fn ncclGetErrorString(code: c_int) -> *const c_char {
            comm_api::error_text(code).as_ptr()
        }
        fn ncclGetLastError(comm: CommHandle) -> *const c_char {
            comm_api::last_error(crate::LIBRARY, comm)
        }
        fn ncclResetDebugInit() -> () {}
        fn ncclResetDebugInitInternal() -> () {}
    }
}
