//! `libnccl.so.2`: the functions of `hetccl-nccl` under NCCL's names.

use hetccl_nccl::{Library, abi, api, delegate, entries, entry};

/// What this library answers to.
const LIBRARY: Library = Library::Nccl;

#[path = "../../src/exports/mod.rs"]
pub mod exports;

/// hetccl's version: no vendor's library has this function, which is how hetccl knows itself.
#[unsafe(no_mangle)]
pub extern "C" fn hetccl_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
