//! The addresses that device memory has in the program: one reserved range, without access.
//!
//! First fit, so that addresses of freed memory come back soon, as they do from real drivers: a cache that does not
//! notice has to fail here. A gap of [`GRAIN`] bytes follows each range.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use crate::Code;

/// Ranges start at multiples of this.
pub(crate) const GRAIN: usize = 64 << 10;

const WINDOW_BYTES: usize = 64 << 30;

static WINDOW: OnceLock<Range<usize>> = OnceLock::new();

/// Which parts of the window are in use.
#[derive(Debug, Default)]
pub(crate) struct Window {
    used: BTreeMap<usize, usize>,
}

/// The reserved addresses, or an empty range before the first allocation.
pub(crate) fn range() -> Range<usize> {
    WINDOW.get().cloned().unwrap_or(0..0)
}

impl Window {
    /// Takes a range of `bytes`, aligned to `alignment` (a power of two).
    pub(crate) fn take(&mut self, bytes: usize, alignment: usize) -> Result<usize, Code> {
        let window = WINDOW.get_or_init(reserve);
        let alignment = alignment.max(GRAIN);
        let bytes = bytes.checked_next_multiple_of(GRAIN).ok_or(Code::OUT_OF_MEMORY)? + GRAIN;
        let mut start = window.start.next_multiple_of(alignment);
        for (&used, &used_bytes) in &self.used {
            if start + bytes <= used {
                break;
            }
            start = (used + used_bytes).next_multiple_of(alignment);
        }
        if start.checked_add(bytes).is_none_or(|end| end > window.end) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.used.insert(start, bytes);
        Ok(start)
    }

    /// Gives back what [`Window::take`] returned.
    pub(crate) fn give_back(&mut self, start: usize) {
        if let Some(bytes) = self.used.remove(&start) {
            clear(start, bytes);
        }
    }
}

/// Replaces what is mapped there by nothing accessible.
pub(crate) fn clear(start: usize, bytes: usize) {
    // SAFETY: the range is the window's own, so no other mapping is replaced.
    unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
}

/// As much as the process may have, up to [`WINDOW_BYTES`].
fn reserve() -> Range<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    for bytes in [WINDOW_BYTES, WINDOW_BYTES / 8, WINDOW_BYTES / 64] {
        // SAFETY: a new mapping, at an address that the system picks.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if start != libc::MAP_FAILED {
            return start as usize..start as usize + bytes;
        }
    }
    eprintln!("hetccl emulator: cannot reserve addresses for device memory (ulimit -v?)");
    0..0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let mut window = Window::default();
        let first = window.take(1, 1).unwrap();
        let second = window.take(GRAIN + 1, 2 << 20).unwrap();
        assert_eq!(second % (2 << 20), 0);
        assert!(second >= first + 2 * GRAIN);
        window.give_back(first);
        assert_eq!(window.take(100, 1).unwrap(), first);
        assert!(window.take(usize::MAX - 5, 1).is_err());
    }
}
