//! What both drivers' interfaces share: numbers that are pointers, and strings of fixed length.

use std::ffi::c_char;

/// The pointer that a driver gave as a number.
pub(crate) fn pointer<T>(number: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(number)
}

/// The text up to the first zero.
pub(crate) fn text(chars: &[c_char]) -> String {
    chars.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
}
