//! A program's `ncclConfig_t`, kept until the vendor's library reads it.

use std::ffi::{CStr, CString, c_char};

use crate::abi::{CONFIG_MAGIC, Config};

/// Bytes that no version's structure goes beyond.
const MOST_BYTES: usize = 1024;
/// Where the structure has strings: the name of a network, and of the communicator (from 2.27 on).
const STRINGS: [(usize, u32); 2] = [(32, 0), (48, 22700)];

/// A copy, with the strings that it points to.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Aligned as the structure is.
    words: Vec<u64>,
    _strings: Vec<CString>,
}

impl Kept {
    /// Copies a program's structure; `None` for none, and for what is none.
    ///
    /// # Safety
    /// Null, or a structure of as many bytes as its first field says.
    pub(crate) unsafe fn copy(config: *const Config) -> Option<Kept> {
        if config.is_null() {
            return None;
        }
        // SAFETY: the caller's promise: at least the first fields, which every version has.
        let head = unsafe { config.read() };
        if head.magic != CONFIG_MAGIC || head.size < size_of::<Config>() {
            return None;
        }
        let bytes = head.size.min(MOST_BYTES);
        let mut words = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: `bytes` of both.
        unsafe {
            std::ptr::copy_nonoverlapping(config.cast::<u8>(), words.as_mut_ptr().cast(), bytes)
        };
        words[0] = bytes as u64;
        let mut strings = Vec::new();
        for (offset, since) in STRINGS {
            if offset + 8 > bytes || head.version < since || words[offset / 8] == 0 {
                continue;
            }
            let text: *const c_char = std::ptr::with_exposed_provenance(words[offset / 8] as usize);
            // SAFETY: a string of the program's, as the interface asks.
            let text = unsafe { CStr::from_ptr(text) }.to_owned();
            words[offset / 8] = text.as_ptr().expose_provenance() as u64;
            strings.push(text);
        }
        Some(Kept { words, _strings: strings })
    }

    /// The structure for the vendor's library.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut Config {
        self.words.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_kept_with_the_structure() {
        #[repr(C)]
        struct Whole {
            size: usize,
            magic: u32,
            version: u32,
            numbers: [i32; 4],
            net_name: *const c_char,
            more: [i32; 2],
            comm_name: *const c_char,
        }
        let name = CString::new("ring").unwrap();
        name.as_ptr().expose_provenance();
        let whole = Whole {
            size: size_of::<Whole>(),
            magic: CONFIG_MAGIC,
            version: 22700,
            numbers: [0, 1, 2, 3],
            net_name: name.as_ptr(),
            more: [4, 5],
            comm_name: std::ptr::null(),
        };
        // SAFETY: a whole structure.
        let mut kept = unsafe { Kept::copy((&raw const whole).cast()) }.unwrap();
        drop(name);
        let copy = kept.as_mut_ptr().cast::<Whole>();
        // SAFETY: a copy of the whole structure.
        let copy = unsafe { copy.read() };
        assert_eq!((copy.size, copy.numbers, copy.more), (56, [0, 1, 2, 3], [4, 5]));
        assert!(copy.comm_name.is_null());
        // SAFETY: the kept string.
        assert_eq!(unsafe { CStr::from_ptr(copy.net_name) }, c"ring");
        // SAFETY: null is allowed.
        assert!(unsafe { Kept::copy(std::ptr::null()) }.is_none());
    }
}
