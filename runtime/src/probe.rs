//! What a program can learn of this host.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hetccl_core::MemoryType;
use hetccl_ucx::{Fabric, FabricParams, Library};

/// UCX on this host.
#[derive(Clone, Debug)]
pub struct Ucx {
    /// Its version and where it was found.
    pub version: String,
    /// Memory that it reaches itself, host memory first.
    pub reaches: Vec<MemoryType>,
}

/// Starts UCX for a moment and asks what memory it reaches.
///
/// # Errors
/// As [`ucx_version`], or why UCX does not start.
pub fn ucx() -> Result<Ucx, String> {
    let version = ucx_version()?;
    // SAFETY: `ucx_version` has found that this thread is the only one, and has loaded the library already.
    let library = unsafe { Library::load() }.map_err(|error| error.to_string())?;
    let params = FabricParams { remote_memory: false, ..FabricParams::default() };
    let fabric = Fabric::open(library, &params).map_err(|error| error.to_string())?;
    let reaches = MemoryType::ALL.into_iter().filter(|&memory| fabric.reaches(memory)).collect();
    // Nothing is under way.
    let _ = fabric.close(Instant::now() + Duration::from_millis(100));
    Ok(Ucx { version, reaches })
}

/// UCX's version and where it was found.
///
/// # Errors
/// Why it can't be loaded, and what to do; or that this process has several threads, as loading UCX changes
/// environment variables for a moment.
pub fn ucx_version() -> Result<String, String> {
    let threads = std::fs::read_dir("/proc/self/task").map(|tasks| tasks.count());
    match threads {
        Ok(1) => {}
        Ok(threads) => {
            return Err(format!("UCX is not looked for in a process with {threads} threads"));
        }
        Err(error) => {
            return Err(format!(
                "UCX is not looked for: it is loaded only while a process has one thread, and /proc, which tells how many it \
                 has, can't be read ({error}); mount it"
            ));
        }
    }
    // SAFETY: this thread is the only one, so nobody else touches the environment.
    let library = unsafe { Library::load() }.map_err(|error| error.to_string())?;
    let (major, minor, release) = library.version();
    Ok(format!("{major}.{minor}.{release}, {}", library.path().display()))
}

/// The shared libraries that this process has loaded, from `/proc/self/maps`; none where that can't be read.
pub fn libraries_in_use() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().contains(".so")).collect();
    found.sort();
    found.dedup();
    found
}
