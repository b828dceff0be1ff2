//! `librccl.so.1`: the functions of `hetccl-nccl` under RCCL's names.

use hetccl_nccl::{Library, abi, api, entries, entry};

/// What this library answers to.
const LIBRARY: Library = Library::Rccl;

#[path = "../../src/exports/mod.rs"]
pub mod exports;
