//! `libnccl.so.2`: the functions of `hetccl-nccl` under NCCL's names.

use hetccl_nccl::{Library, abi, api, entries, entry};

/// What this library answers to.
const LIBRARY: Library = Library::Nccl;

#[path = "../../src/exports/mod.rs"]
pub mod exports;
