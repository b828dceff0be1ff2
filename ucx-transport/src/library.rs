//! Finds and loads UCX, quietly and once.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::sys;

/// The environment variable that names the folder of `libucp.so.0` where the dynamic loader doesn't know it.
pub const LIBRARY_FOLDER_VARIABLE: &str = "HETCCL_UCX_LIB";

const SONAME: &str = "libucp.so.0";

/// The version of the API that is used, whatever the headers and the library.
pub(crate) const API_VERSION: (u32, u32) = (1, 13);

/// What UCX is told while it loads, unless the user tells it something else.
///
/// It reads these once, in its constructor: its log stays out of the user's terminal, it leaves signals and `malloc`
/// alone. Its hooks on `mmap` and `munmap` stay: registered memory depends on them.
const QUIET: &[(&str, &str)] = &[
    ("UCX_LOG_LEVEL", "fatal"),
    ("UCX_MEM_LOG_LEVEL", "fatal"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_MEM_MALLOC_HOOKS", "n"),
    ("UCX_MEM_MALLOC_RELOC", "n"),
];

static LIBRARY: OnceCell<Library> = OnceCell::new();

/// The loaded UCX library; it stays loaded until the process ends.
pub struct Library {
    api: sys::Api,
    version: (u32, u32, u32),
    path: PathBuf,
}

impl Library {
    /// Loads libucp, or returns the one loaded before.
    ///
    /// It is looked for in the folder that `HETCCL_UCX_LIB` names, and only there where it is set; otherwise as the
    /// dynamic loader looks for libraries.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] when it isn't found, lacks a function or is too old. A later call tries again.
    ///
    /// # Safety
    /// While the library is loaded (the first call that succeeds) no other thread may read or change the environment:
    /// variables that UCX reads are set for that time. Process start-up, where `MPI_Init` is, is such a time.
    pub unsafe fn load() -> Result<&'static Library, Error> {
        // SAFETY: the caller's promise is passed on.
        LIBRARY.get_or_try_init(|| unsafe { load() })
    }

    /// Major, minor and release number.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// What was given to the dynamic loader: the bare file name, or a path below `HETCCL_UCX_LIB`.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    #[inline]
    pub(crate) fn api(&self) -> &sys::Api {
        &self.api
    }

    /// UCX's words for a status.
    pub(crate) fn status_text(&self, status: sys::ucs_status_t) -> String {
        // SAFETY: any status may be asked for; the answer is a string constant, or one in thread-local memory that is
        // copied here.
        let text = unsafe { CStr::from_ptr(self.api.ucs_status_string(status)) };
        text.to_string_lossy().into_owned()
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("version", &self.version)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// # Safety
/// As [`Library::load`].
unsafe fn load() -> Result<Library, Error> {
    let path = match std::env::var_os(LIBRARY_FOLDER_VARIABLE) {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder).join(SONAME),
        _ => PathBuf::from(SONAME),
    };
    let missing =
        |reason: String| Error::LibraryMissing { looked_for: path.display().to_string(), reason };
    let loaded = {
        // SAFETY: the caller of `Library::load` answers for the environment.
        let _quiet = unsafe { Quiet::new() };
        // SAFETY: UCX's constructors set up its own state only.
        unsafe { libloading::Library::new(&path) }
    };
    let loaded = loaded.map_err(|error| missing(with_remedy(error.to_string(), &path)))?;
    // SAFETY: the functions have the types that the headers of the same soname declare.
    let api =
        unsafe { sys::Api::from_library(loaded) }.map_err(|error| missing(error.to_string()))?;
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three valid pointers to unsigned integers.
    unsafe { api.ucp_get_version(&mut major, &mut minor, &mut release) };
    if (major, minor) < API_VERSION {
        return Err(missing(format!("found UCX {major}.{minor}.{release}, which is too old")));
    }
    Ok(Library { api, version: (major, minor, release), path })
}

/// A libucp that meets another UCX's libucs lacks some of its functions; what the loader says does not tell that.
fn with_remedy(reason: String, path: &Path) -> String {
    match path.parent() {
        Some(folder) if reason.contains("undefined symbol: uc") => format!(
            "{reason}. This process has another UCX already, as Open MPI 5 is linked with one: let the whole program take this \
             one, LD_LIBRARY_PATH={}, exported to all ranks",
            folder.display()
        ),
        _ => reason,
    }
}

/// Variables set for as long as this lives.
struct Quiet {
    set: Vec<&'static str>,
}

impl Quiet {
    /// # Safety
    /// No other thread reads or changes the environment until the value has been dropped.
    unsafe fn new() -> Quiet {
        let unset = QUIET.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        let set = unset.map(|&(name, value)| {
            // SAFETY: this function's own contract.
            unsafe { std::env::set_var(name, value) };
            name
        });
        Quiet { set: set.collect() }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        for name in &self.set {
            // SAFETY: the contract of `new` lasts until here.
            unsafe { std::env::remove_var(name) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_ucx_in_the_process_has_a_remedy() {
        let path = Path::new("/opt/ucx/lib/libucp.so.0");
        let said = with_remedy("libucp.so.0: undefined symbol: ucs_topo_max_distance".into(), path);
        assert!(said.contains("LD_LIBRARY_PATH=/opt/ucx/lib,"), "{said}");
        assert_eq!(with_remedy("no such file".into(), path), "no such file");
    }
}
