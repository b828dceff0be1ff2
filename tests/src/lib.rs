//! What the suites that run MPI programs share.
#![forbid(unsafe_code)]

mod emulation;
pub mod hosts;
pub mod nccl;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use emulation::{Emulation, emulation};
use xtask::mpi::{self, Library};
use xtask::{command, install};

/// The transports that everything runs on.
pub const TRANSPORTS: [&str; 2] = ["ucx", "pml"];

/// An installation of what is being tested, made once; `None`, and said, where there is no Open MPI.
///
/// # Panics
/// When it can't be built.
pub fn prefix(what: &str) -> Option<&'static Path> {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    if !mpi::available(Library::OpenMpi) {
        println!("SKIPPED {what}: no mpicc and mpirun of Open MPI on PATH");
        return None;
    }
    let prefix = PREFIX.get_or_init(|| {
        let prefix = command::target_dir().join("prefix");
        install::release(&prefix).unwrap_or_else(|error| panic!("{error:#}"));
        prefix.canonicalize().unwrap_or(prefix)
    });
    Some(prefix)
}

/// Compiles a program of `tests/c` for Open MPI.
///
/// # Panics
/// With the compiler's messages.
pub fn program(name: &str) -> PathBuf {
    mpi::compile(name, Library::OpenMpi).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Compiles an emulated vendor's library (`tests/c/vendor_ccl.c`) into `folder`: NCCL for `index` 0, RCCL for 1.
///
/// # Panics
/// With the compiler's messages.
pub fn vendor_library(folder: &Path, index: usize, name: &str, options: &[&str]) -> PathBuf {
    let library = folder.join(format!("{}-{name}.so", ["nccl", "rccl"][index]));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC"]);
    cc.arg(format!("-DCUDA={}", 1 - index)).args(options).arg("-o").arg(&library);
    cc.arg(command::root().join("tests/c/vendor_ccl.c")).arg("-pthread");
    command::capture(&mut cc).unwrap_or_else(|error| panic!("{error:#}"));
    library
}
