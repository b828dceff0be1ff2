//! Memory: registered, allocated, counted.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::communicator::{done, put};
use crate::abi::CommHandle;
use crate::delegate::calls;
use crate::{Failure, Library, comm, init};

/// Handles of registered buffers: memory is looked up at each use, so that registering is only a promise.
static REGISTERED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

pub unsafe fn register(
    handle: CommHandle,
    buffer: *mut c_void,
    bytes: usize,
    place: *mut *mut c_void,
) -> Result<(), Failure> {
    comm::find(handle)?.working()?;
    if buffer.is_null() || bytes == 0 {
        return Err(Failure::argument(format!("{bytes} bytes at {buffer:?} can't be registered")));
    }
    let token: *mut c_void = Box::into_raw(Box::new(0u64)).cast();
    // SAFETY: the caller's promise.
    unsafe { put(place, "the registration", token)? };
    REGISTERED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .push((handle.addr(), token.addr()));
    Ok(())
}

pub fn deregister(handle: CommHandle, token: *mut c_void) -> Result<(), Failure> {
    comm::find(handle)?;
    let mut all = REGISTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let index = all.iter().position(|&known| known == (handle.addr(), token.addr()));
    let index = index
        .ok_or_else(|| Failure::argument("this registration is not one of the communicator's"))?;
    all.swap_remove(index);
    Ok(())
}

pub unsafe fn allocate(
    library: Library,
    place: *mut *mut c_void,
    bytes: usize,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    if let Some(code) = unsafe { calls::allocate(library, place, bytes) } {
        return Ok(code);
    }
    if bytes == 0 {
        return Err(Failure::argument("0 bytes can't be allocated"));
    }
    let driver = init::vendor(library).open()?;
    let (_, context) = driver.current()?;
    let memory = driver.allocate(context, bytes)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, "the memory", std::ptr::with_exposed_provenance_mut(memory)) }.map(done)
}

pub fn free(library: Library, memory: *mut c_void) -> Result<c_int, Failure> {
    if memory.is_null() {
        return Ok(done(()));
    }
    if let Some(code) = calls::free(library, memory) {
        return Ok(code);
    }
    let driver = init::vendor(library).open()?;
    let place = driver.locate(memory.addr());
    let place =
        place.ok_or_else(|| Failure::argument(format!("{memory:?} is not device memory")))?;
    driver.free(place.context, memory.addr());
    Ok(done(()))
}

/// `NCCL_SUSPEND_MEM`: device memory is given back.
const SUSPEND_MEMORY: c_int = 1;

/// Gives the communicator's memory back until it is resumed. Nothing may be under way.
pub fn suspend(handle: CommHandle, flags: c_int) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let live = comm.working()?;
    if flags != SUSPEND_MEMORY {
        return Err(Failure::argument(format!(
            "the flags of a suspension are {flags}; possible: 1 (NCCL_SUSPEND_MEM)"
        )));
    }
    if !live.is_idle() {
        return Err(Failure::usage(
            "work of the communicator is under way: synchronize its streams before it is suspended",
        ));
    }
    comm.suspended.store(true, Ordering::Release);
    live.trim();
    Ok(())
}

pub fn resume(handle: CommHandle) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    comm.live()?;
    match comm.suspended.swap(false, Ordering::AcqRel) {
        true => Ok(()),
        false => Err(Failure::usage("the communicator is not suspended")),
    }
}

pub unsafe fn memory_statistics(
    handle: CommHandle,
    which: c_int,
    place: *mut u64,
) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let all = comm.live()?.device_bytes.load(Ordering::Relaxed) as u64;
    match which {
        // Memory that can be suspended, and all: the same, since all of it is kept for later use only.
        // SAFETY: the caller's promise.
        0 | 3 => unsafe { put(place, "the statistic", all) },
        // SAFETY: the caller's promise.
        1 => unsafe { put(place, "the statistic", comm.suspended.load(Ordering::Acquire).into()) },
        // Memory that can't be.
        // SAFETY: the caller's promise.
        2 => unsafe { put(place, "the statistic", 0) },
        _ => Err(Failure::argument(format!("{which} is no statistic; they go from 0 to 3"))),
    }
}
