//! Communicators whose calls go to the vendor's own library.
//!
//! A handle that a program gets is a number of hetccl's own, and odd, which no library's pointers are. It leads to a word
//! that holds the vendor's communicator where there is one, so that a call costs a look at that word and one indirect call.
//!
//! ```text
//! mod.rs       handles, the vendor's library, its functions
//! agree.rs     whether a new communicator is handed on: all its ranks decide alike
//! inside.rs    whether vendors' libraries work inside the groups of one that is not
//! calls.rs     calls that make or end communicators, groups, memory
//! ```

pub(crate) mod agree;
#[cfg(feature = "fuzz")]
pub(crate) use agree::read_words;
pub(crate) mod calls;
mod config;
pub(crate) mod inside;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use hetccl_runtime::gpu::{VendorCcl, version_text};

pub(crate) use config::Kept;

use crate::abi::{Code, CommHandle};
use crate::log::{self, Level};
use crate::{Failure, Library, init};

/// What a handle leads to. It is never freed, so that a handle of a communicator that has ended is known as such.
#[derive(Debug)]
pub(crate) struct Handle {
    vendor: AtomicPtr<c_void>,
    /// The vendor's library will write `vendor` at the end of a group or of a nonblocking call.
    pending: AtomicBool,
}

impl Handle {
    /// A new one, and the number for the program.
    pub(crate) fn create() -> (CommHandle, &'static Handle) {
        let handle: &'static Handle = Box::leak(Box::new(Handle {
            vendor: AtomicPtr::new(std::ptr::null_mut()),
            pending: AtomicBool::new(false),
        }));
        let number = std::ptr::from_ref(handle).cast_mut().cast::<c_void>();
        (number.map_addr(|address| address | 1), handle)
    }

    /// From now on calls go to the vendor's library.
    pub(crate) fn hand_on(&self, comm: NonNull<c_void>) {
        self.vendor.store(comm.as_ptr(), Ordering::Release);
    }

    /// No more calls go there.
    fn end(&self) -> *mut c_void {
        self.pending.store(false, Ordering::Release);
        self.vendor.swap(std::ptr::null_mut(), Ordering::AcqRel)
    }
}

fn handle(comm: CommHandle) -> Option<&'static Handle> {
    if comm.addr() & 1 == 0 {
        return None;
    }
    let place = comm.map_addr(|address| address & !1).cast::<Handle>();
    // SAFETY: odd numbers are given out by `Handle::create` alone, whose memory stays; a program passes on what it was given.
    Some(unsafe { &*place })
}

/// The vendor's communicator behind a handle.
#[inline]
pub fn vendor_comm(comm: CommHandle) -> Option<CommHandle> {
    let Some(handle) = handle(comm) else { return vendors_own(comm) };
    let vendor = handle.vendor.load(Ordering::Acquire);
    (!vendor.is_null()).then_some(vendor)
}

/// The vendor's own pointer, in a call of its library to itself that has come out here. The library is bound to itself when
/// hetccl opens it, but on an H200 PyTorch's NCCL called hetccl's `ncclCommGetAsyncError` all the same.
#[cold]
fn vendors_own(comm: CommHandle) -> Option<CommHandle> {
    let any = IN_USE.iter().any(|used| used.load(Ordering::Acquire));
    (any && !comm.is_null()).then_some(comm)
}

/// Whether the vendor's library still makes this communicator.
pub(crate) fn is_pending(comm: CommHandle) -> bool {
    handle(comm).is_some_and(|handle| {
        handle.pending.load(Ordering::Acquire) && handle.vendor.load(Ordering::Acquire).is_null()
    })
}

static VENDORS: [OnceLock<Result<VendorCcl, String>>; 2] = [const { OnceLock::new() }; 2];
static IN_USE: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// Whether the last failed call was one of the vendor's library.
static VENDOR_FAILED_LAST: AtomicBool = AtomicBool::new(false);

/// The vendor's library, looked for once.
///
/// # Errors
/// Where it was looked for, and what was wrong with each file.
pub(crate) fn load(library: Library) -> Result<&'static VendorCcl, &'static str> {
    let found = VENDORS[library as usize]
        .get_or_init(|| VendorCcl::find(init::vendor(library)).map_err(|error| error.to_string()));
    found.as_ref().map_err(String::as_str)
}

/// The vendor's library, if calls go there.
pub(crate) fn in_use(library: Library) -> Option<&'static VendorCcl> {
    let used = IN_USE[library as usize].load(Ordering::Acquire);
    used.then(|| VENDORS[library as usize].get()?.as_ref().ok()).flatten()
}

fn use_from_now_on(library: Library) {
    IN_USE[library as usize].store(true, Ordering::Release);
}

/// A function of the vendor's library, looked up at its first call.
#[derive(Debug)]
pub struct Slot(AtomicPtr<c_void>);

impl Slot {
    /// One that has not been looked up.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Slot {
        Slot(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The function's address; `None` where the vendor's version has none, or no calls go there.
    #[inline]
    pub fn find(&self, library: Library, name: &CStr) -> Option<NonNull<c_void>> {
        NonNull::new(self.0.load(Ordering::Relaxed)).or_else(|| self.look_up(library, name))
    }

    #[cold]
    fn look_up(&self, library: Library, name: &CStr) -> Option<NonNull<c_void>> {
        let found = in_use(library)?.symbol(name)?;
        self.0.store(found.as_ptr(), Ordering::Relaxed);
        Some(found)
    }
}

/// What a call without a function to go to returns.
#[cold]
pub fn missing(library: Library, name: &'static str) -> c_int {
    crate::entry::enter(name, || Err(no_function(library)))
}

fn no_function(library: Library) -> Failure {
    let whose = in_use(library).map_or_else(String::new, |vendor| {
        format!("{} is version {}", vendor.path().display(), version_text(vendor.version()))
    });
    Failure::usage(format!(
        "this communicator's calls go to the vendor's library, which has no such function ({whose}): \
         use a newer one, or set HETCCL_DELEGATE=0 for hetccl's own"
    ))
}

/// Passes a result of the vendor's library on, and notes failures.
#[inline]
pub fn told(library: Library, name: &'static str, code: c_int) -> c_int {
    if code != Code::Success as c_int && code != Code::InProgress as c_int {
        note(library, name, code);
    }
    code
}

#[cold]
fn note(library: Library, name: &'static str, code: c_int) {
    VENDOR_FAILED_LAST.store(true, Ordering::Release);
    let text = in_use(library).map_or_else(String::new, |vendor| vendor.text(code));
    log::line(Level::Warn, &format!("{name} of the vendor's library: {text} ({code})"));
}

/// A failure of hetccl's own is the last one now.
pub(crate) fn own_failure() {
    VENDOR_FAILED_LAST.store(false, Ordering::Release);
}

/// The vendor's text for the last error, if the last failed call was one of its library.
pub(crate) fn last_error(library: Library, comm: CommHandle) -> Option<*const c_char> {
    static SLOT: Slot = Slot::new();
    let vendor = vendor_comm(comm);
    if vendor.is_none() && !VENDOR_FAILED_LAST.load(Ordering::Acquire) {
        return None;
    }
    let function = SLOT.find(library, c"ncclGetLastError")?;
    // SAFETY: the function has this type in every version.
    let function: unsafe extern "C" fn(CommHandle) -> *const c_char =
        unsafe { std::mem::transmute(function) };
    // SAFETY: the vendor's own handle, or none.
    let text = unsafe { function(vendor.unwrap_or(std::ptr::null_mut())) };
    (!text.is_null()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_to_the_vendors_communicator_until_it_ends() {
        let (comm, handle) = Handle::create();
        assert_eq!(comm.addr() % 2, 1);
        assert_eq!(vendor_comm(comm), None);
        let mut communicator = 0u64;
        let vendor = NonNull::from(&mut communicator).cast::<c_void>();
        handle.hand_on(vendor);
        assert_eq!(vendor_comm(comm), Some(vendor.as_ptr()));
        assert_eq!(handle.end(), vendor.as_ptr());
        assert_eq!(vendor_comm(comm), None);
        assert_eq!(vendor_comm(std::ptr::null_mut()), None);
        assert_eq!(vendor_comm(vendor.as_ptr()), None, "a pointer is no handle");
    }
}
