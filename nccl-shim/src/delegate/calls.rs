//! Calls of the vendor's library that hetccl has a part in: they make or end communicators, open groups, or give memory.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;

use super::{Handle, Slot, handle, in_use, no_function, told};
use crate::abi::{Code, CommHandle, Config, NO_COLOR, UniqueId};
use crate::{Failure, Library};

/// A function of the vendor's library as its type.
macro_rules! function {
    ($library:expr, $name:literal, fn($($type:ty),*)) => {{
        static SLOT: Slot = Slot::new();
        SLOT.find($library, $name).map(|function| {
            // SAFETY: the function has this type in every version that has it.
            unsafe { std::mem::transmute::<_, unsafe extern "C" fn($($type),*) -> c_int>(function) }
        })
    }};
}

/// Lets `make` write the vendor's new communicator behind a new handle, now or at the end of a group.
fn child(place: *mut CommHandle, none: bool, make: impl FnOnce(*mut CommHandle) -> c_int) -> c_int {
    if place.is_null() {
        return make(place);
    }
    let (number, handle) = Handle::create();
    handle.pending.store(!none, std::sync::atomic::Ordering::Release);
    let code = make(handle.vendor.as_ptr());
    let made = code == Code::Success as c_int || code == Code::InProgress as c_int;
    if !made {
        handle.end();
    }
    // SAFETY: not null; the program promises room for a handle.
    unsafe { place.write(if made && !none { number } else { std::ptr::null_mut() }) };
    code
}

/// `ncclCommSplit` of a vendor's communicator.
///
/// # Safety
/// Pointers are what NCCL's documentation says.
pub(crate) unsafe fn split(
    library: Library,
    comm: CommHandle,
    color: c_int,
    key: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<c_int, Failure> {
    let call = function!(
        library,
        c"ncclCommSplit",
        fn(CommHandle, c_int, c_int, *mut CommHandle, *const Config)
    )
    .ok_or_else(|| no_function(library))?;
    // SAFETY: the caller's promise; the handle's word stays.
    let code =
        child(place, color == NO_COLOR, |new| unsafe { call(comm, color, key, new, config) });
    Ok(told(library, "ncclCommSplit", code))
}

/// `ncclCommShrink` of a vendor's communicator.
///
/// # Safety
/// Pointers are what NCCL's documentation says.
pub(crate) unsafe fn shrink(
    library: Library,
    comm: CommHandle,
    excluded: *const c_int,
    excluded_len: c_int,
    place: *mut CommHandle,
    config: *const Config,
    flags: c_int,
) -> Result<c_int, Failure> {
    let call = function!(
        library,
        c"ncclCommShrink",
        fn(CommHandle, *const c_int, c_int, *mut CommHandle, *const Config, c_int)
    )
    .ok_or_else(|| no_function(library))?;
    // SAFETY: the caller's promise; the handle's word stays.
    let code = child(place, false, |new| unsafe {
        call(comm, excluded, excluded_len, new, config, flags)
    });
    Ok(told(library, "ncclCommShrink", code))
}

/// `ncclCommGrow` of a vendor's communicator, or by a new rank with a vendor's id.
///
/// # Safety
/// Pointers are what NCCL's documentation says.
pub(crate) unsafe fn grow(
    library: Library,
    comm: CommHandle,
    size: c_int,
    id: *const UniqueId,
    rank: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<c_int, Failure> {
    let call = function!(
        library,
        c"ncclCommGrow",
        fn(CommHandle, c_int, *const UniqueId, c_int, *mut CommHandle, *const Config)
    )
    .ok_or_else(|| no_function(library))?;
    // SAFETY: the caller's promise; the handle's word stays.
    let code = child(place, false, |new| unsafe { call(comm, size, id, rank, new, config) });
    Ok(told(library, "ncclCommGrow", code))
}

/// Ends a vendor's communicator by `ncclCommDestroy` or `ncclCommAbort`; `None` if it is none of the vendor's.
pub(crate) fn end(library: Library, comm: CommHandle, abort: bool) -> Option<c_int> {
    let vendor = handle(comm)?.end();
    if vendor.is_null() {
        return None;
    }
    let name: &'static str = if abort { "ncclCommAbort" } else { "ncclCommDestroy" };
    let call = if abort {
        function!(library, c"ncclCommAbort", fn(CommHandle))
    } else {
        function!(library, c"ncclCommDestroy", fn(CommHandle))
    };
    // SAFETY: the vendor's communicator; its handle has just been taken out of use.
    Some(told(library, name, unsafe { call?(vendor) }))
}

thread_local! {
    /// Groups of the vendor's library that this thread has open.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// Opens a group of the vendor's library, if calls go there.
pub(crate) fn group_start(library: Library) {
    if let Some(call) = function!(library, c"ncclGroupStart", fn()) {
        // SAFETY: no arguments.
        if told(library, "ncclGroupStart", unsafe { call() }) == Code::Success as c_int {
            OPEN.set(OPEN.get() + 1);
        }
    }
}

/// Closes the group that [`group_start`] opened, if it did.
pub(crate) fn group_end(library: Library) -> c_int {
    if OPEN.get() == 0 {
        return Code::Success as c_int;
    }
    OPEN.set(OPEN.get() - 1);
    match function!(library, c"ncclGroupEnd", fn()) {
        // SAFETY: no arguments.
        Some(call) => told(library, "ncclGroupEnd", unsafe { call() }),
        None => Code::Success as c_int,
    }
}

/// Memory that the vendor's library gave.
static GIVEN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// `ncclMemAlloc` of the vendor's library, if calls go there.
///
/// # Safety
/// Room for a pointer at `place`.
pub(crate) unsafe fn allocate(
    library: Library,
    place: *mut *mut c_void,
    bytes: usize,
) -> Option<c_int> {
    let call = function!(library, c"ncclMemAlloc", fn(*mut *mut c_void, usize))?;
    // SAFETY: the caller's promise.
    let code = told(library, "ncclMemAlloc", unsafe { call(place, bytes) });
    if code == Code::Success as c_int && !place.is_null() {
        // SAFETY: the library has written there.
        let address = unsafe { place.read() }.addr();
        let mut given = GIVEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        given.get_or_insert_default().insert(address);
    }
    Some(code)
}

/// `ncclMemFree` of the vendor's library; `None` for memory that it did not give.
pub(crate) fn free(library: Library, memory: *mut c_void) -> Option<c_int> {
    let mut given = GIVEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !given.as_mut()?.remove(&memory.addr()) {
        return None;
    }
    drop(given);
    let call = function!(library, c"ncclMemFree", fn(*mut c_void))?;
    // SAFETY: memory that the library gave and that has not been freed.
    Some(told(library, "ncclMemFree", unsafe { call(memory) }))
}

/// Whether the vendor's library is in use and has a function.
pub(crate) fn has(library: Library, name: &CStr) -> bool {
    in_use(library).is_some_and(|vendor| vendor.symbol(name).is_some())
}
