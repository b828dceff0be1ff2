//! The UCP context: what a process asks of UCX as a whole.

use std::ffi::{CStr, CString};
use std::ptr;

use hetccl_core::MemoryType;

use crate::error::Error;
use crate::library::{API_VERSION, Library};
use crate::sys;

/// What a [`Fabric`](crate::Fabric) is made for. Hints change speed and memory, never meaning.
#[derive(Clone, Debug, Default)]
pub struct FabricParams {
    /// How many endpoints will be made, about; 0 when unknown. UCX chooses transports that scale so far.
    pub estimated_endpoints: usize,
    /// How many processes of the job run on this host; 0 when unknown.
    pub processes_per_node: usize,
    /// Whether remote memory will be read and written. Endpoints are larger with it.
    pub remote_memory: bool,
    /// UCX's settings without the prefix `UCX_`, as `("TLS", "tcp")`. They win over this crate's choices; what the
    /// user has set in the environment wins over both.
    pub settings: Vec<(String, String)>,
}

/// Settings that differ from UCX's own.
///
/// Shared memory counts as able to report failed peers only when told to, and would otherwise be left out.
/// The interval is the time between looks at silent peers, 20 s by default.
const SETTINGS: &[(&str, &str)] = &[("MM_ERROR_HANDLING", "y"), ("KEEPALIVE_INTERVAL", "2s")];

/// A context.
pub(crate) struct Context {
    library: &'static Library,
    raw: sys::ucp_context_h,
    memory_types: u64,
}

impl Context {
    pub(crate) fn new(library: &'static Library, params: &FabricParams) -> Result<Context, Error> {
        let config = Config::read(library)?;
        for &(name, value) in SETTINGS {
            if !params.settings.iter().any(|(other, _)| other == name) {
                config.apply(name, value)?;
            }
        }
        for (name, value) in &params.settings {
            config.apply(name, value)?;
        }
        let raw = init(library, params, &config)?;
        let mut context = Context { library, raw, memory_types: 0 };
        context.memory_types = context.query_memory_types()?;
        Ok(context)
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::ucp_context_h {
        self.raw
    }

    #[inline]
    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// Whether UCX reaches memory of this type itself.
    pub(crate) fn reaches(&self, memory: MemoryType) -> bool {
        self.memory_types >> ucx_memory_type(memory) & 1 == 1
    }

    fn query_memory_types(&self) -> Result<u64, Error> {
        let mut attributes = sys::ucp_context_attr_t {
            field_mask: u64::from(sys::UCP_ATTR_FIELD_MEMORY_TYPES),
            ..Default::default()
        };
        // SAFETY: the context lives, the attributes are valid and say which fields are wanted.
        let status = unsafe { self.library.api().ucp_context_query(self.raw, &mut attributes) };
        Error::check(self.library, "ucp_context_query", status)?;
        Ok(attributes.memory_types)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `ucp_init_version`; what was made from it is gone, as the fabric drops it last.
        unsafe { self.library.api().ucp_cleanup(self.raw) };
    }
}

/// `UCS_MEMORY_TYPE_ZE_DEVICE` and `UCS_MEMORY_TYPE_ZE_MANAGED`, which headers before UCX 1.19 lack. A UCX that is older
/// does not say that it reaches them. Source: `ucs/memory/memory_type.h`.
const ZE_DEVICE: sys::ucs_memory_type_t = 7;
const ZE_MANAGED: sys::ucs_memory_type_t = 8;

/// UCX's number for a memory type.
#[inline]
pub(crate) const fn ucx_memory_type(memory: MemoryType) -> sys::ucs_memory_type_t {
    match memory {
        MemoryType::Host => sys::UCS_MEMORY_TYPE_HOST,
        MemoryType::Cuda => sys::UCS_MEMORY_TYPE_CUDA,
        MemoryType::CudaManaged => sys::UCS_MEMORY_TYPE_CUDA_MANAGED,
        MemoryType::Rocm => sys::UCS_MEMORY_TYPE_ROCM,
        MemoryType::RocmManaged => sys::UCS_MEMORY_TYPE_ROCM_MANAGED,
        MemoryType::LevelZero => ZE_DEVICE,
        MemoryType::LevelZeroManaged => ZE_MANAGED,
    }
}

fn init(
    library: &'static Library,
    params: &FabricParams,
    config: &Config,
) -> Result<sys::ucp_context_h, Error> {
    let mut features = sys::UCP_FEATURE_TAG;
    if params.remote_memory {
        features |= sys::UCP_FEATURE_RMA;
    }
    let mut fields = sys::UCP_PARAM_FIELD_FEATURES | sys::UCP_PARAM_FIELD_NAME;
    if params.estimated_endpoints > 0 {
        fields |= sys::UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    }
    if params.processes_per_node > 0 {
        fields |= sys::UCP_PARAM_FIELD_ESTIMATED_NUM_PPN;
    }
    let name: &CStr = c"hetccl";
    let ucp_params = sys::ucp_params_t {
        field_mask: u64::from(fields),
        features: u64::from(features),
        estimated_num_eps: params.estimated_endpoints,
        estimated_num_ppn: params.processes_per_node,
        name: name.as_ptr(),
        ..Default::default()
    };
    let (major, minor) = API_VERSION;
    let mut raw = ptr::null_mut();
    // SAFETY: parameters, configuration and the place for the result are valid; the name is a constant.
    let status =
        unsafe { library.api().ucp_init_version(major, minor, &ucp_params, config.raw, &mut raw) };
    Error::check(library, "ucp_init", status)?;
    Ok(raw)
}

/// UCX's configuration: its defaults and the user's environment, then changes.
struct Config {
    library: &'static Library,
    raw: *mut sys::ucp_config_t,
}

impl Config {
    fn read(library: &'static Library) -> Result<Config, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: no prefix and no file are allowed; the place for the result is valid.
        let status = unsafe { library.api().ucp_config_read(ptr::null(), ptr::null(), &mut raw) };
        Error::check(library, "ucp_config_read", status)?;
        Ok(Config { library, raw })
    }

    /// Changes a setting unless the user's environment has it.
    fn apply(&self, name: &str, value: &str) -> Result<(), Error> {
        if std::env::var_os(format!("UCX_{name}")).is_some() {
            return Ok(());
        }
        let bad = |what: &str| Error::Call {
            operation: "ucp_config_modify",
            native_code: i32::from(sys::UCS_ERR_INVALID_PARAM),
            reason: format!("UCX_{name}={value}: {what}"),
        };
        let (Ok(c_name), Ok(c_value)) = (CString::new(name), CString::new(value)) else {
            return Err(bad("a zero byte inside"));
        };
        // SAFETY: the configuration lives; UCX copies both strings.
        let status = unsafe {
            self.library.api().ucp_config_modify(self.raw, c_name.as_ptr(), c_value.as_ptr())
        };
        match status {
            sys::UCS_OK => Ok(()),
            status => Err(bad(&self.library.status_text(status))),
        }
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: made by `ucp_config_read`, released once.
        unsafe { self.library.api().ucp_config_release(self.raw) };
    }
}
