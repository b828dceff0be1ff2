//! Copies of few bytes.

use std::ptr::copy_nonoverlapping as copy;

/// A copy that is as cheap as can be for a word.
///
/// # Safety
/// As for `copy_nonoverlapping`, except that both may be null where `len` is 0.
#[inline]
pub(super) unsafe fn copy_short(from: *const u8, into: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            0 => {}
            4 => into.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            16 => into.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()),
            _ => copy(from, into, len),
        }
    }
}
