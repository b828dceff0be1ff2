//! Open MPI's run-time environment: progress, exchange of addresses, parameters, messages to the user.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::os::raw::c_int;

use crate::communicator::{ProcessName, check};
use crate::sys;

/// This process's name.
pub fn my_name() -> ProcessName {
    // SAFETY: reads a value that is set before components are opened.
    ProcessName(unsafe { sys::hetccl_my_name() })
}

/// Lets every part of Open MPI progress, this component's callback included. Never under a lock.
pub fn progress() {
    // SAFETY: may be called from any thread that may call MPI.
    unsafe { sys::hetccl_progress() }
}

/// Adds a callback to Open MPI's progress; it returns how many events it handled.
pub fn register_progress(callback: unsafe extern "C" fn() -> c_int) {
    // SAFETY: the callback is a function of this shared object, taken out before it is unloaded.
    unsafe { sys::hetccl_progress_register(Some(callback)) };
}

/// Takes a callback out.
pub fn unregister_progress(callback: unsafe extern "C" fn() -> c_int) {
    // SAFETY: as for `register_progress`.
    unsafe { sys::hetccl_progress_unregister(Some(callback)) };
}

/// The PML in use, such as `ob1`.
pub fn pml_name() -> String {
    // SAFETY: a string of the selected component, which lives as long as the library.
    unsafe { CStr::from_ptr(sys::hetccl_pml_name()) }.to_string_lossy().into_owned()
}

/// Publishes bytes for all processes under a key. Before MPI_Init's exchange.
///
/// # Errors
/// Open MPI's status.
pub fn modex_put(key: &CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: key and bytes are copied by the call.
    check(unsafe { sys::hetccl_modex_put(key.as_ptr(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Fetches what a process published under a key.
///
/// # Errors
/// Open MPI's status; not found is one.
pub fn modex_get(peer: ProcessName, key: &CStr) -> Result<Vec<u8>, i32> {
    let (mut bytes, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the results are ours.
    check(unsafe { sys::hetccl_modex_get(peer.0, key.as_ptr(), &mut bytes, &mut len) })?;
    if bytes.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the call returned `len` bytes allocated with malloc, which are ours to free.
    unsafe {
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), len).to_vec();
        libc_free(bytes);
        Ok(copy)
    }
}

unsafe extern "C" {
    #[link_name = "free"]
    fn libc_free(memory: *mut c_void);
}

/// Whether the user named a component in `--mca coll`.
pub fn named_in_coll(component: &CStr) -> bool {
    // SAFETY: reads a parameter.
    unsafe { sys::hetccl_named_in_coll(component.as_ptr()) }
}

/// Whether the parameter `coll` lets a component take part.
pub fn allowed_in_coll(component: &CStr) -> bool {
    // SAFETY: reads a parameter.
    unsafe { sys::hetccl_allowed_in_coll(component.as_ptr()) }
}

/// Whether this job survives failed processes (`mpirun --with-ft ulfm`).
pub fn survives_failures() -> bool {
    // SAFETY: reads a value that is set before components are opened.
    unsafe { sys::hetccl_ft_enabled() }
}

/// The error class for a peer that is gone: `MPI_ERR_PROC_FAILED` where the job survives it.
pub fn failed_process_error() -> i32 {
    // SAFETY: reads a value that is set before components are opened.
    unsafe { sys::hetccl_ft_failed_process() }
}

/// Adds a component to those that Open MPI was linked with, if Open MPI has not looked at them yet.
///
/// # Safety
/// `component` is a component's description and lives as long as the process. No other thread uses Open MPI yet.
pub unsafe fn join_static_components(component: *const sys::mca_base_component_t) {
    // SAFETY: the caller's promise.
    unsafe { sys::hetccl_join_static_components(component) }
}

/// A line for those who asked with `--mca coll_base_verbose LEVEL`.
pub fn coll_verbose(level: i32, line: &str) {
    let line = c_string(line);
    // SAFETY: the string lives during the call.
    unsafe { sys::hetccl_coll_verbose(level, line.as_ptr()) }
}

/// A framed message for the user.
pub fn show_error(title: &str, text: &str) {
    let (title, text) = (c_string(title), c_string(text));
    // SAFETY: the strings live during the call.
    unsafe { sys::hetccl_show_error(title.as_ptr(), text.as_ptr()) }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A parameter that Open MPI would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Its name, without prefix.
    pub name: String,
    /// Open MPI's status.
    pub status: i32,
    /// What would be right.
    pub possible: String,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the value of coll_hetccl_{} is not possible (status {}); possible: {}",
            self.name, self.status, self.possible
        )
    }
}

impl std::error::Error for ParameterError {}

/// Writes a line to stderr in one piece, so that lines of several ranks do not mix.
pub fn tell(line: &str) {
    use std::io::Write;
    // Where stderr is gone there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("hetccl: {line}\n").as_bytes());
}

/// Registers the parameters of a component. Values live as long as the process: Open MPI keeps their addresses.
pub struct Parameters {
    component: *const sys::mca_base_component_t,
}

impl Parameters {
    /// Parameters of this component.
    ///
    /// # Safety
    /// `component` is the component's description and outlives all parameters.
    pub unsafe fn of(component: *const sys::mca_base_component_t) -> Parameters {
        Parameters { component }
    }

    /// A whole number; the result is where its value will be found.
    ///
    /// # Errors
    /// When Open MPI refuses the registration or the value.
    pub fn number(
        &self,
        name: &str,
        help: &str,
        level: i32,
        default: i64,
    ) -> Result<i64, ParameterError> {
        let storage = Box::leak(Box::new(default.max(0) as usize));
        let (c_name, c_help) = (c_string(name), c_string(help));
        // SAFETY: the storage is never freed; Open MPI copies the strings.
        let status = unsafe {
            sys::hetccl_param_size(self.component, c_name.as_ptr(), c_help.as_ptr(), level, storage)
        };
        check(status).map_err(|status| {
            let possible = "a whole number".to_owned();
            ParameterError { name: name.into(), status, possible }
        })?;
        Ok(i64::try_from(*storage).unwrap_or(i64::MAX))
    }

    /// A small number that may be negative.
    ///
    /// # Errors
    /// When Open MPI refuses the registration or the value.
    pub fn integer(
        &self,
        name: &str,
        help: &str,
        level: i32,
        default: i32,
    ) -> Result<i32, ParameterError> {
        let storage: &'static mut c_int = Box::leak(Box::new(default));
        let (c_name, c_help) = (c_string(name), c_string(help));
        // SAFETY: the storage is never freed; Open MPI copies the strings.
        let status = unsafe {
            sys::hetccl_param_int(self.component, c_name.as_ptr(), c_help.as_ptr(), level, storage)
        };
        check(status).map_err(|status| {
            let possible = "a whole number".to_owned();
            ParameterError { name: name.into(), status, possible }
        })?;
        Ok(*storage)
    }

    /// One of some words, the first by default; the result is its index. Open MPI itself refuses others and lists
    /// the right ones.
    ///
    /// # Errors
    /// When Open MPI refuses the registration or the value.
    pub fn word(
        &self,
        name: &str,
        help: &str,
        level: i32,
        words: &[&str],
    ) -> Result<usize, ParameterError> {
        let storage: &'static mut c_int = Box::leak(Box::new(0));
        let (c_name, c_help) = (c_string(name), c_string(help));
        let c_words: Vec<CString> = words.iter().map(|word| c_string(word)).collect();
        let mut list: Vec<sys::hetccl_word_t> = c_words
            .iter()
            .enumerate()
            .map(|(value, word)| sys::hetccl_word_t { value: value as c_int, name: word.as_ptr() })
            .collect();
        list.push(sys::hetccl_word_t { value: 0, name: std::ptr::null() });
        // SAFETY: the storage is never freed; Open MPI copies the strings and the list.
        let status = unsafe {
            sys::hetccl_param_word(
                self.component,
                c_name.as_ptr(),
                c_help.as_ptr(),
                level,
                list.as_ptr(),
                storage,
            )
        };
        check(status).map_err(|status| {
            let possible = words.join(", ");
            ParameterError { name: name.into(), status, possible }
        })?;
        Ok(usize::try_from(*storage).unwrap_or(0).min(words.len() - 1))
    }
}
