//! The component that Open MPI loads: its description, parameters, opening and closing, and the answer to "do you want
//! this communicator?".

use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};

use hetccl_core::Collective;
use hetccl_mca::{CommunicatorRef, ParameterError, Parameters, named_in_coll, sys};
use hetccl_runtime::{
    PRIORITY_HELP, SETTINGS, Settings, VERBOSE_HELP, WORD_SETTINGS, algorithm_setting,
};

use crate::module;
use crate::state::{Plugin, Verbosity};

const NAME: &CStr = c"hetccl";

/// The priority that hetccl takes when it is named in `--mca coll` and the user gives none: above Open MPI's own.
const PRIORITY_WHEN_NAMED: c_int = 90;

/// The priority in force; negative: take no part.
static PRIORITY: AtomicI32 = AtomicI32::new(-1);

/// What Open MPI looks up by name in the shared object.
///
/// Mutable because Open MPI keeps a non-const pointer; hetccl never writes it.
#[unsafe(no_mangle)]
pub static mut mca_coll_hetccl_component: sys::mca_coll_base_component_t = describe();

/// Runs when the object is loaded. Where that is before Open MPI looks for components (`LD_PRELOAD`), hetccl joins those that
/// Open MPI was linked with: the way into an Open MPI that loads none, such as PyPI's wheels.
#[used]
#[unsafe(link_section = ".init_array")]
static JOIN: extern "C" fn() = {
    extern "C" fn join() {
        if let Err(error) = hetccl_mca::check_running() {
            // Open MPI is asked no more here: with libraries of two lines in one process it may not even start.
            if std::env::var_os("LD_PRELOAD").is_some_and(|list| is_preloaded(&list)) {
                hetccl_mca::tell(&format!("{error}"));
            }
            return;
        }
        // SAFETY: the description is a static of this object, which nobody unloads once it is preloaded; Open MPI is not in
        // use yet, or the call does nothing.
        unsafe {
            hetccl_mca::join_static_components(&raw const mca_coll_hetccl_component.collm_version);
        }
    }
    join
};

/// Whether a list of preloaded objects has this one.
fn is_preloaded(list: &OsStr) -> bool {
    list.to_string_lossy().contains("mca_coll_hetccl")
}

const fn describe() -> sys::mca_coll_base_component_t {
    // SAFETY: all fields are integers, character arrays and optional function pointers, for which zero is a value.
    let mut component: sys::mca_coll_base_component_t = unsafe { std::mem::zeroed() };
    let version = &mut component.collm_version;
    version.mca_major_version = sys::MCA_BASE_VERSION_MAJOR as c_int;
    version.mca_minor_version = sys::MCA_BASE_VERSION_MINOR as c_int;
    version.mca_release_version = sys::MCA_BASE_VERSION_RELEASE as c_int;
    version.mca_project_name = text(b"ompi");
    version.mca_project_major_version = sys::OMPI_MAJOR_VERSION as c_int;
    version.mca_project_minor_version = sys::OMPI_MINOR_VERSION as c_int;
    version.mca_project_release_version = sys::OMPI_RELEASE_VERSION as c_int;
    version.mca_type_name = text(b"coll");
    let [major, minor, release] = sys::COLL_VERSION;
    version.mca_type_major_version = major;
    version.mca_type_minor_version = minor;
    version.mca_type_release_version = release;
    version.mca_component_name = text(b"hetccl");
    version.mca_component_major_version = decimal(env!("CARGO_PKG_VERSION_MAJOR"));
    version.mca_component_minor_version = decimal(env!("CARGO_PKG_VERSION_MINOR"));
    version.mca_component_release_version = decimal(env!("CARGO_PKG_VERSION_PATCH"));
    version.mca_register_component_params = Some(register);
    version.mca_open_component = Some(open);
    version.mca_close_component = Some(close);
    component.collm_init_query = Some(init_query);
    component.collm_comm_query = Some(comm_query);
    component
}

const fn text<const N: usize>(word: &[u8]) -> [c_char; N] {
    let mut field = [0; N];
    let mut i = 0;
    while i < word.len() {
        field[i] = word[i] as c_char;
        i += 1;
    }
    field
}

const fn decimal(text: &str) -> c_int {
    let (bytes, mut value, mut i) = (text.as_bytes(), 0, 0);
    while i < bytes.len() {
        value = value * 10 + (bytes[i] - b'0') as c_int;
        i += 1;
    }
    value
}

extern "C" fn register() -> c_int {
    if let Err(error) = hetccl_mca::check_running() {
        if named_in_coll(NAME) {
            hetccl_mca::show_error("hetccl: another Open MPI", &error.to_string());
        }
        return sys::OMPI_ERR_NOT_SUPPORTED;
    }
    // SAFETY: the description is a static of this object.
    let parameters = unsafe { Parameters::of(&raw const mca_coll_hetccl_component.collm_version) };
    match read_parameters(&parameters) {
        Ok(()) => sys::OMPI_SUCCESS as c_int,
        Err(error) => {
            hetccl_mca::show_error("hetccl: a parameter is wrong", &error);
            sys::OMPI_ERR_BAD_PARAM
        }
    }
}

/// Registers every parameter, and keeps the values for [`open`].
fn read_parameters(parameters: &Parameters) -> Result<(), String> {
    let refused = |error: ParameterError| error.to_string();
    let mut settings = Settings::default();
    if let Some(seconds) = std::env::var("HETCCL_STALL_SECONDS").ok().and_then(|n| n.parse().ok()) {
        settings.stall_seconds = seconds;
    }
    let priority = parameters.integer("priority", PRIORITY_HELP, 2, 0).map_err(refused)?;
    PRIORITY.store(effective_priority(priority), Ordering::Relaxed);
    let verbose = parameters.integer("verbose", VERBOSE_HELP, 3, 0).map_err(refused)?;
    for setting in WORD_SETTINGS {
        let level = setting.level;
        let chosen = parameters.word(setting.name, setting.help, level, setting.words);
        (setting.set)(&mut settings, chosen.map_err(refused)?);
    }
    for collective in Collective::ALL {
        read_algorithm(parameters, &mut settings, collective)?;
    }
    for setting in SETTINGS {
        let default = (setting.get)(&settings) as i64;
        let value = parameters.number(setting.name, setting.help, 5, default).map_err(refused)?;
        settings.set_number(setting.name, value).map_err(|error| format!("coll_hetccl_{error}"))?;
    }
    Plugin::configure(settings, Verbosity(verbose));
    Ok(())
}

fn read_algorithm(
    parameters: &Parameters,
    settings: &mut Settings,
    collective: Collective,
) -> Result<(), String> {
    let (help, words) = algorithm_setting(collective);
    let name = format!("{}_algorithm", collective.name());
    let chosen = parameters.word(&name, &help, 4, &words).map_err(|error| error.to_string())?;
    settings.set_algorithm(collective, words[chosen]).map_err(|error| error.to_string())
}

/// 0 means: only when named.
fn effective_priority(priority: c_int) -> c_int {
    let named = named_in_coll(NAME);
    match priority {
        0 if named => PRIORITY_WHEN_NAMED,
        0 => -1,
        other => other,
    }
}

/// Early in MPI_Init, before processes exchange their addresses.
extern "C" fn open() -> c_int {
    let priority = PRIORITY.load(Ordering::Relaxed);
    if priority < 0 {
        if named_in_coll(NAME) {
            let text = format!(
                "--mca coll names hetccl, and coll_hetccl_priority is {priority}, which keeps it out. Leave the \
                 priority at 0, or name other components."
            );
            hetccl_mca::show_error("hetccl: named, and kept out", &text);
        }
        return sys::OMPI_SUCCESS as c_int;
    }
    match std::panic::catch_unwind(Plugin::open) {
        Ok(()) => sys::OMPI_SUCCESS as c_int,
        Err(_) => sys::OMPI_ERROR,
    }
}

extern "C" fn close() -> c_int {
    let _ = std::panic::catch_unwind(Plugin::close);
    sys::OMPI_SUCCESS as c_int
}

extern "C" fn init_query(_progress_threads: bool, _mpi_threads: bool) -> c_int {
    if PRIORITY.load(Ordering::Relaxed) < 0 {
        return sys::OMPI_ERR_NOT_AVAILABLE;
    }
    sys::OMPI_SUCCESS as c_int
}

/// # Safety
/// Open MPI passes a communicator under construction and a place for the priority.
unsafe extern "C" fn comm_query(
    comm: *mut sys::ompi_communicator_t,
    priority: *mut c_int,
) -> *mut sys::mca_coll_base_module_t {
    // SAFETY: Open MPI's promise; the communicator outlives its module.
    let comm = unsafe { CommunicatorRef::from_raw(comm) };
    // SAFETY: as above.
    unsafe { *priority = PRIORITY.load(Ordering::Relaxed) };
    match std::panic::catch_unwind(|| module::create(comm)) {
        Ok(Some(module)) => module,
        _ => std::ptr::null_mut(),
    }
}
