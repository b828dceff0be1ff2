//! The emulated drivers and the kernels that they run.

use std::path::PathBuf;
use std::sync::OnceLock;

use xtask::{emulate, kernels};

/// What a process on emulated devices needs.
#[derive(Debug)]
pub struct Emulation {
    /// The folder with the drivers.
    pub drivers: PathBuf,
    /// The kernels, compiled for the host: HETCCL_EMULATOR_KERNELS.
    pub kernels: PathBuf,
}

/// The emulation, built once.
///
/// # Panics
/// When it can't be built.
pub fn emulation() -> &'static Emulation {
    static MADE: OnceLock<Emulation> = OnceLock::new();
    MADE.get_or_init(|| Emulation {
        drivers: emulate::libraries().unwrap_or_else(|error| panic!("{error:#}")),
        kernels: kernels::host_library().unwrap_or_else(|error| panic!("{error:#}")),
    })
}
