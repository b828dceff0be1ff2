//! The vendors' own collective libraries, NCCL and RCCL, in private tables.
//!
//! hetccl's libraries answer to the same file names in a process, so a vendor's is opened by absolute path, local to its
//! table (`RTLD_LOCAL`) and bound to its own functions (`RTLD_DEEPBIND`).

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::Library;

use crate::vendor::Vendor;

/// A symbol that hetccl's libraries have and no vendor's.
const OWN_MARK: &[u8] = b"hetccl_version\0";
const OLDEST: i32 = 21300;
const NEWEST: i32 = 23299;
/// Where the dynamic loader keeps what it knows.
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// Where a vendor's packages put their libraries, after what the loader names.
const USUAL_FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64", "/opt/rocm/lib"];

/// Functions without which a library is of no use.
const REQUIRED: [&CStr; 21] = [
    c"ncclGetVersion",
    c"ncclGetUniqueId",
    c"ncclGetErrorString",
    c"ncclCommInitRank",
    c"ncclCommDestroy",
    c"ncclCommAbort",
    c"ncclCommGetAsyncError",
    c"ncclCommCount",
    c"ncclCommCuDevice",
    c"ncclCommUserRank",
    c"ncclGetLastError",
    c"ncclGroupStart",
    c"ncclGroupEnd",
    c"ncclAllReduce",
    c"ncclReduce",
    c"ncclReduceScatter",
    c"ncclAllGather",
    c"ncclBroadcast",
    c"ncclBcast",
    c"ncclSend",
    c"ncclRecv",
];

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetUniqueId = unsafe extern "C" fn(*mut [u8; 128]) -> c_int;
type GetErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// Why a vendor's library can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CclError {
    /// The vendor has no such library that hetccl knows of.
    #[error("{} has no collective library that hetccl knows of", vendor.name())]
    NoLibrary {
        /// Whose.
        vendor: Vendor,
    },
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
    /// The library has no way to do something.
    #[error("{path} has no {what}")]
    Missing {
        /// The library.
        path: String,
        /// A function or an operation.
        what: &'static str,
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
    library: std::mem::ManuallyDrop<Library>,
    path: PathBuf,
    version: i32,
}

impl VendorCcl {
    /// Finds and loads a vendor's library: the one that HETCCL_NCCL_LIBRARY or HETCCL_RCCL_LIBRARY names, and only that
    /// where it is set; otherwise next to the framework's libraries in this process, then where the dynamic loader looks.
    ///
    /// # Errors
    /// [`CclError::NotFound`] with every place.
    pub fn find(vendor: Vendor) -> Result<VendorCcl, CclError> {
        let (library, setting) = names(vendor).ok_or(CclError::NoLibrary { vendor })?;
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
            tried.push(
                "neither beside a loaded framework nor where the dynamic loader looks".into(),
            );
        }
        Err(CclError::NotFound { library, setting, tried })
    }

    /// Loads one file; the error says what is wrong with it.
    ///
    /// # Errors
    /// Not an absolute path, not loadable, hetccl's own library, a function missing, or a version that hetccl does not know.
    pub fn open(path: &Path) -> Result<VendorCcl, String> {
        if !path.is_absolute() {
            return Err("must be an absolute path".into());
        }
        if is_this_file(path) {
            return Err("is hetccl's own library, not the vendor's".into());
        }
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY: a vendor library's constructors set up its own state.
        let library = unsafe { Library::open(Some(path), flags) };
        // A library whose constructors have run is not taken away again.
        let library = std::mem::ManuallyDrop::new(library.map_err(|error| error.to_string())?);
        let mut loaded = VendorCcl { library, path: path.to_owned(), version: 0 };
        // SAFETY: the symbol is looked for, not used.
        if unsafe { loaded.library.get::<*const c_void>(OWN_MARK) }.is_ok() {
            return Err("is hetccl's own library, not the vendor's".into());
        }
        if let Some(missing) = REQUIRED.iter().find(|name| loaded.symbol(name).is_none()) {
            return Err(format!("has no {}", missing.to_string_lossy()));
        }
        // SAFETY: the function has this type in every version.
        let get_version: Option<GetVersion> =
            unsafe { std::mem::transmute(loaded.symbol(c"ncclGetVersion")) };
        let version = &mut loaded.version;
        // SAFETY: a valid pointer to an integer.
        let code = get_version.map_or(-1, |function| unsafe { function(version) });
        if code != 0 {
            return Err(format!("does not tell its version ({code})"));
        }
        let in_words = version_text(loaded.version);
        if loaded.version < OLDEST {
            return Err(format!("is version {in_words}, older than {}", version_text(OLDEST)));
        }
        if loaded.version > NEWEST {
            return Err(format!(
                "is version {in_words}, newer than 2.32, the last one that hetccl knows"
            ));
        }
        Ok(loaded)
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
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the symbol's address is taken, nothing is called.
        let found = unsafe { self.library.get::<*mut c_void>(name.to_bytes_with_nul()) };
        found.ok().and_then(|symbol| NonNull::new(symbol.into_raw()))
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
        if code == 0 { Ok(id) } else { Err(self.refused("ncclGetUniqueId", code)) }
    }

    /// The refusal of a call, in the library's words.
    pub(crate) fn refused(&self, function: &'static str, code: i32) -> CclError {
        let path = self.path.display().to_string();
        CclError::Call { function, path, code, text: self.text(code) }
    }

    /// A function by its name.
    ///
    /// # Errors
    /// [`CclError::Missing`].
    pub(crate) fn function(&self, name: &'static CStr) -> Result<NonNull<c_void>, CclError> {
        self.symbol(name).ok_or_else(|| self.missing(name.to_str().unwrap_or_default()))
    }

    /// The error for what it has not.
    pub(crate) fn missing(&self, what: &'static str) -> CclError {
        CclError::Missing { path: self.path.display().to_string(), what }
    }

    /// The library's words for one of its result codes.
    pub fn text(&self, code: i32) -> String {
        // SAFETY: the function has this type in every version.
        let function: Option<GetErrorString> =
            unsafe { std::mem::transmute(self.symbol(c"ncclGetErrorString")) };
        // SAFETY: any code may be asked for.
        let text =
            function.map(|function| unsafe { function(code) }).filter(|text| !text.is_null());
        text.map_or_else(String::new, |text| {
            // SAFETY: a string constant of the library.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        })
    }
}

/// A version as people write it.
pub fn version_text(version: i32) -> String {
    match version {
        ..10_000 => format!("{}.{}.{}", version / 1000, version / 100 % 10, version % 100),
        _ => format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100),
    }
}

/// The vendor's file, and the setting that names it.
fn names(vendor: Vendor) -> Option<(&'static str, &'static str)> {
    match vendor {
        Vendor::Cuda => Some(("libnccl.so.2", "HETCCL_NCCL_LIBRARY")),
        Vendor::Rocm => Some(("librccl.so.1", "HETCCL_RCCL_LIBRARY")),
        Vendor::LevelZero => None,
    }
}

/// Whether this code is part of the file.
fn is_this_file(path: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|of| (of.dev(), of.ino()));
    // SAFETY: all zeros are a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: *const c_void = (is_this_file as fn(&Path) -> bool as *const ()).cast();
    // SAFETY: an address of code, and room for the answer.
    if unsafe { libc::dladdr(here, &mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: a string of the loader's that stays while this code is loaded.
    let own = unsafe { CStr::from_ptr(info.dli_fname) };
    let own = Path::new(OsStr::from_bytes(own.to_bytes()));
    identity(own).is_some_and(|own| identity(path) == Some(own))
}

/// Where a library may be, in the order to try: beside the libraries of frameworks that this process has loaded, then
/// where the dynamic loader looks.
fn places(library: &str) -> Vec<PathBuf> {
    let mut found =
        beside_frameworks(&std::fs::read("/proc/self/maps").unwrap_or_default(), library);
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&folders).map(|folder| folder.join(library)));
    found.extend(in_loader_cache(&std::fs::read(LOADER_CACHE).unwrap_or_default(), library));
    found.extend(USUAL_FOLDERS.iter().map(|folder| Path::new(folder).join(library)));
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| {
        path.is_absolute()
            && std::fs::metadata(path)
                .is_ok_and(|of| of.is_file() && seen.insert((of.dev(), of.ino())))
    });
    found
}

/// The places beside frameworks, from the files that a process has mapped.
fn beside_frameworks(maps: &[u8], library: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let bare = library.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit());
    for line in maps.split(|&byte| byte == b'\n') {
        let Some(at) = line.iter().position(|&byte| byte == b'/') else { continue };
        let file = Path::new(OsStr::from_bytes(&line[at..]));
        for folder in file.ancestors().skip(1) {
            match folder.file_name().and_then(OsStr::to_str) {
                Some("lib") if folder.parent().is_some_and(|parent| parent.ends_with("torch")) => {
                    found.extend([folder.join(library), folder.join(bare)]);
                }
                Some("site-packages" | "dist-packages") => {
                    found.push(folder.join("nvidia/nccl/lib").join(library));
                }
                _ => {}
            }
        }
    }
    found
}

/// The paths that end in this file name; the cache keeps them as strings with a zero at the end.
fn in_loader_cache(cache: &[u8], library: &str) -> Vec<PathBuf> {
    let strings = cache.split(|&byte| byte == 0).map(|string| Path::new(OsStr::from_bytes(string)));
    strings
        .filter(|path| path.is_absolute() && path.file_name() == Some(OsStr::new(library)))
        .map(Path::to_owned)
        .collect()
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
        assert!(refused("old", &source(21200, "")).contains("2.12.0, older than 2.13"));
        assert!(refused("new", &source(23300, "")).contains("newer than 2.32"));
        assert!(refused("less", &source(22803, "ncclAllGather")).contains("has no ncclAllGather"));
        assert!(VendorCcl::open(Path::new("libnccl.so.2")).unwrap_err().contains("absolute"));
        assert!(
            VendorCcl::open(Path::new("/nowhere/libnccl.so.2")).unwrap_err().contains("/nowhere")
        );
        let own_file = std::env::current_exe().unwrap();
        assert!(VendorCcl::open(&own_file).unwrap_err().contains("hetccl's own"));
    }

    #[test]
    fn libraries_are_looked_for_beside_frameworks_and_in_the_cache() {
        let maps = b"7f00-7f01 r-xp 00000000 08:01 12 /v/lib/python3.12/site-packages/torch/lib/libtorch.so\n7f02 [heap]\n";
        let found = beside_frameworks(maps, "librccl.so.1");
        let wanted =
            ["torch/lib/librccl.so.1", "torch/lib/librccl.so", "nvidia/nccl/lib/librccl.so.1"];
        let wanted = wanted.map(|end| Path::new("/v/lib/python3.12/site-packages").join(end));
        assert_eq!(found, wanted);
        let cache =
            b"glibc-ld.so.cache1.1\x01\0\0libnccl.so.2\0/x/libnccl.so.2\0/x/libnccl.so.22\0";
        assert_eq!(in_loader_cache(cache, "libnccl.so.2"), [PathBuf::from("/x/libnccl.so.2")]);
    }

    /// A real library, where HETCCL_TEST_LIBRARY names one.
    #[test]
    fn the_vendors_own_library_loads_and_tells_why_it_can_not_start() {
        let Some(path) = std::env::var_os("HETCCL_TEST_LIBRARY").map(PathBuf::from) else {
            println!(
                "SKIPPED the vendor's own library: HETCCL_TEST_LIBRARY names none; cargo xtask test-vendor does"
            );
            return;
        };
        let library =
            VendorCcl::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        match library.unique_id() {
            Ok(id) => assert!(id.iter().any(|&byte| byte != 0)),
            Err(error) => assert!(error.to_string().contains("ncclGetUniqueId"), "{error}"),
        }
        type InitAll = unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_int) -> c_int;
        // SAFETY: the function has this type in every version.
        let init: Option<InitAll> =
            unsafe { std::mem::transmute(library.symbol(c"ncclCommInitAll")) };
        let mut comm = std::ptr::null_mut();
        // SAFETY: room for one communicator, on the first device.
        let code = init.map_or(-1, |function| unsafe { function(&mut comm, 1, std::ptr::null()) });
        assert!(code == 0 || !library.text(code).is_empty());
        println!("a communicator of one rank: {} ({code})", library.text(code));
        println!("{} is version {}", path.display(), version_text(library.version()));
    }
}
