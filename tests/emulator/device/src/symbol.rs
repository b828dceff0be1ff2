//! Functions of the library that this code is in, by name.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

/// The function's address.
pub fn find(name: &str) -> Option<usize> {
    let name = CString::new(name).ok()?;
    // SAFETY: a handle from dlopen, and a terminated name.
    let found = unsafe { libc::dlsym(own_library() as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

/// This library, as the loader knows it.
fn own_library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: the address is of this library, so dladdr fills the structure with a name that is a string; the library
        // is only opened once more.
        unsafe {
            let mut found: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(own_library as fn() -> usize as *const c_void, &mut found);
            libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) as usize
        }
    })
}
