//! A UCX with CUDA modules, which Debian's has not.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{command, python};

/// The release of the Python package `libucx-cu13`.
const RELEASE: &str = "1.22.0";

/// The folder with its `libucp.so.0`, fetched at the first call.
///
/// # Errors
/// When pip can't fetch it.
pub fn library_folder() -> Result<PathBuf> {
    let environment = python::with_package(&command::target_dir(), "libucx-cu13", RELEASE)?;
    let versions = std::fs::read_dir(environment.join("lib"))?;
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path()));
    let mut libraries = folders.map(|folder| folder.join("site-packages/libucx/lib"));
    libraries.find(|folder| folder.exists()).context("libucx-cu13 has no libucx/lib")
}
