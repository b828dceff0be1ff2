//! The vendors' collective libraries, NCCL and RCCL, in private tables.
//!
//! hetccl's own library answers to the same file name in a process, so the vendor's is opened by absolute path, local to its
//! table (`RTLD_LOCAL`) and bound to its own functions (`RTLD_DEEPBIND`).

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::driver::Vendor;

/// A symbol that hetccl's library has and no vendor's.
const OWN_MARK: &CStr = c"hetccl_version";
const OLDEST: i32 = 21300;

/// Functions without which a library is of no use.
const REQUIRED: [&CStr; 13] = [
    c"ncclGetVersion",
    c"ncclGetUniqueId",
    c"ncclGetErrorString",
    c"ncclCommInitRank",
    c"ncclCommDestroy",
    c"ncclCommAbort",
    c"ncclCommGetAsyncError",
    c"ncclGroupStart",
    c"ncclGroupEnd",
    c"ncclAllReduce",
    c"ncclReduceScatter",
    c"ncclAllGather",
    c"ncclBroadcast",
];

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetUniqueId = unsafe extern "C" fn(*mut [u8; 128]) -> c_int;
type GetErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// Why a vendor's library can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CclError {
    /// Not found, or found and not usable: each place and why.
    #[error(
        "no usable {library}: {}. Set {setting} to the absolute path of the vendor's library", tried.join("; ")
    )]
    NotFound {
        /// The file that was looked for.
        library: &'static str,
        /// The setting that names it.
        setting: &'static str,
        /// Each place that was looked at, and what was there.
        tried: Vec<String>,
    },
    /// The library refused a call.
    #[error("{function} of {path}: {text} ({code})")]
    Call {
        /// The function.
        function: &'static str,
        /// The library.
        path: String,
        /// The library's result code.
        code: i32,
        /// The library's words for it.
        text: String,
    },
}

/// A loaded NCCL or RCCL. It stays loaded until the process ends.
#[derive(Debug)]
pub struct VendorCcl {
    handle: usize,
    path: PathBuf,
    version: i32,
}

impl VendorCcl {
    /// Finds and loads a vendor's library: the one that HETCCL_NCCL_LIBRARY or HETCCL_RCCL_LIBRARY names, and only that
    /// where it is set; otherwise next to the framework's libraries in this process, then as the dynamic loader's cache
    /// has it.
    ///
    /// # Errors
    /// [`CclError::NotFound`] with every place.
    pub fn find(vendor: Vendor) -> Result<VendorCcl, CclError> {
        let (library, setting) = names(vendor);
        let set = std::env::var_os(setting).filter(|path| !path.is_empty());
        let places = match &set {
            Some(path) => vec![PathBuf::from(path)],
            None => places(library),
        };
        let mut tried = Vec::new();
        for path in places {
            match VendorCcl::open(&path) {
                Ok(library) => return Ok(library),
                Err(why) => tried.push(format!("{}: {why}", path.display())),
            }
        }
        if tried.is_empty() {
            tried
                .push("neither beside a loaded framework nor in the dynamic loader's cache".into());
        }
        Err(CclError::NotFound { library, setting, tried })
    }

    /// Loads one file; the error says what is wrong with it.
    ///
    /// # Errors
    /// Not an absolute path, not loadable, hetccl's own library, a function missing, or too old.
    pub fn open(path: &Path) -> Result<VendorCcl, String> {
        if !path.is_absolute() {
            return Err("must be an absolute path".into());
        }
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY: a string that ends with zero; a vendor library's constructors set up its own state.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() {
            return Err(loader_words());
        }
        let mut library =
            VendorCcl { handle: handle.expose_provenance(), path: path.to_owned(), version: 0 };
        if library.symbol(OWN_MARK).is_some() {
            return Err("is hetccl's own library, not the vendor's".into());
        }
        if let Some(missing) = REQUIRED.iter().find(|name| library.symbol(name).is_none()) {
            return Err(format!("has no {}", missing.to_string_lossy()));
        }
        // SAFETY: the function has this type in every version.
        let get_version: Option<GetVersion> =
            unsafe { std::mem::transmute(library.symbol(c"ncclGetVersion")) };
        let version = &mut library.version;
        // SAFETY: a valid pointer to an integer.
        let code = get_version.map_or(-1, |function| unsafe { function(version) });
        if code != 0 {
            return Err(format!("does not tell its version ({code})"));
        }
        if library.version < OLDEST {
            return Err(format!("is version {}, older than 2.13", library.version));
        }
        Ok(library)
    }

    /// As the library encodes it: 22803 is 2.28.3.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Any function by its name, such as `ncclCommSplit`; `None` when this version has none. Who calls it answers for its
    /// type.
    pub fn symbol(&self, name: &CStr) -> Option<std::ptr::NonNull<c_void>> {
        let handle = std::ptr::with_exposed_provenance_mut(self.handle);
        // SAFETY: a handle that is never closed, and a string that ends with zero.
        std::ptr::NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
    }

    /// The vendor's own unique id.
    ///
    /// # Errors
    /// The library's refusal, such as on a host without a GPU.
    pub fn unique_id(&self) -> Result<[u8; 128], CclError> {
        let mut id = [0; 128];
        // SAFETY: the function has this type in every version.
        let function: Option<GetUniqueId> =
            unsafe { std::mem::transmute(self.symbol(c"ncclGetUniqueId")) };
        // SAFETY: 128 bytes, as the library writes.
        let code = function.map_or(-1, |function| unsafe { function(&mut id) });
        if code == 0 {
            return Ok(id);
        }
        let path = self.path.display().to_string();
        Err(CclError::Call { function: "ncclGetUniqueId", path, code, text: self.text(code) })
    }

    fn text(&self, code: i32) -> String {
        // SAFETY: the function has this type in every version.
        let function: Option<GetErrorString> =
            unsafe { std::mem::transmute(self.symbol(c"ncclGetErrorString")) };
        // SAFETY: any code may be asked for.
        let text =
            function.map(|function| unsafe { function(code) }).filter(|text| !text.is_null());
        match text {
            // SAFETY: a string constant of the library.
            Some(text) => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            None => String::new(),
        }
    }
}

fn names(vendor: Vendor) -> (&'static str, &'static str) {
    match vendor {
        Vendor::Cuda => ("libnccl.so.2", "HETCCL_NCCL_LIBRARY"),
        Vendor::Rocm => ("librccl.so.1", "HETCCL_RCCL_LIBRARY"),
    }
}

/// Where a library may be: beside the libraries of frameworks that this process has loaded, and in the loader's cache.
fn places(library: &str) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let file = Path::new(&line[at..]);
        for folder in file.ancestors().skip(1) {
            let name = folder.file_name().and_then(OsStr::to_str);
            match name {
                Some("lib") if folder.parent().is_some_and(|parent| parent.ends_with("torch")) => {
                    found.push(folder.join(library));
                    found.push(
                        folder.join(
                            library.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()),
                        ),
                    );
                }
                Some("site-packages" | "dist-packages") => {
                    found.push(folder.join("nvidia/nccl/lib").join(library));
                }
                _ => {}
            }
        }
    }
    let listed = std::process::Command::new("/sbin/ldconfig").arg("-p").output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    for line in listed.unwrap_or_default().lines() {
        if let Some((name, path)) = line.trim().split_once(" => ")
            && name.split_whitespace().next() == Some(library)
        {
            found.push(PathBuf::from(path));
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| path.is_file() && seen.insert(path.clone()));
    found
}

fn loader_words() -> String {
    // SAFETY: a string of the loader's, for this thread, until its next call.
    let text = unsafe { libc::dlerror() };
    match text.is_null() {
        true => "could not be loaded".into(),
        // SAFETY: not null, ends with zero.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library made of one C file.
    fn library(name: &str, source: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hetccl-ccl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (c, so) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        std::fs::write(&c, source).unwrap();
        let compiled = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&so)
            .arg(&c)
            .status();
        assert!(compiled.unwrap().success());
        so
    }

    fn source(version: i32, without: &str) -> String {
        let mut text = format!(
            "int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}\n\
             int ncclGetUniqueId(void *id) {{ (void)id; return 1; }}\n\
             const char *ncclGetErrorString(int c) {{ (void)c; return \"no device here\"; }}\n"
        );
        for name in &REQUIRED[3..] {
            let name = name.to_str().unwrap();
            if name != without {
                text += &format!("int {name}(void) {{ return 4; }}\n");
            }
        }
        text
    }

    #[test]
    fn usable_libraries_load_and_their_refusals_are_told() {
        let good = VendorCcl::open(&library("good", &source(22803, ""))).unwrap();
        assert_eq!(good.version(), 22803);
        assert!(good.symbol(c"ncclCommSplit").is_none());
        let error = good.unique_id().unwrap_err().to_string();
        assert!(
            error.contains("ncclGetUniqueId") && error.contains("no device here (1)"),
            "{error}"
        );
    }

    #[test]
    fn what_is_of_no_use_is_refused_with_the_reason() {
        let own = source(23203, "") + "int hetccl_version(void) { return 1; }\n";
        let refused = |name: &str, text: &str| VendorCcl::open(&library(name, text)).unwrap_err();
        assert!(refused("own", &own).contains("hetccl's own"));
        assert!(refused("old", &source(21200, "")).contains("older than 2.13"));
        assert!(refused("less", &source(22803, "ncclAllGather")).contains("has no ncclAllGather"));
        assert!(VendorCcl::open(Path::new("libnccl.so.2")).unwrap_err().contains("absolute"));
        assert!(
            VendorCcl::open(Path::new("/nowhere/libnccl.so.2")).unwrap_err().contains("/nowhere")
        );
    }
}
