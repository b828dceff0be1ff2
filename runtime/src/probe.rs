//! What a program can learn of this host without starting anything.

use hetccl_ucx::Library;

/// UCX's version and where it was found.
///
/// # Errors
/// Why it can't be loaded, and what to do; or that this process has several threads, as loading UCX changes
/// environment variables for a moment.
pub fn ucx_version() -> Result<String, String> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
    if threads != 1 {
        return Err(format!("UCX is not looked for in a process with {threads} threads"));
    }
    // SAFETY: this thread is the only one, so nobody else touches the environment.
    let library = unsafe { Library::load() }.map_err(|error| error.to_string())?;
    let (major, minor, release) = library.version();
    Ok(format!("{major}.{minor}.{release}, {}", library.path().display()))
}
