//! HIP's functions, found at run time in `libamdhip64.so` of ROCm 5 to 7.
//!
//! The published `hip-sys` wants the library when it is built and covers an older interface, so the few functions that
//! are used stand here. Source: HIP API reference; signatures and values there.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::{Library as Opened, RTLD_LAZY, RTLD_LOCAL};

use crate::driver::Callback;
use crate::error::Error;
use crate::foreign::functions;
use crate::vendor::Vendor;

/// `hipError_t`.
pub(super) type Status = c_int;

/// `hipSuccess`.
pub(super) const SUCCESS: Status = 0;
/// `hipErrorNoDevice` and `hipErrorInvalidDevice`: `hipInit` says one or the other, by version, on a host without a GPU.
pub(super) const NO_DEVICE: Status = 100;
pub(super) const INVALID_DEVICE: Status = 101;
/// `hipErrorNotReady`.
pub(super) const NOT_READY: Status = 600;
/// `hipMemcpyDefault`.
pub(super) const COPY_ANY: c_int = 4;
/// `hipStreamNonBlocking`.
pub(super) const NON_BLOCKING: c_uint = 1;
/// `hipStreamWaitValueGte`.
pub(super) const WAIT_AT_LEAST: c_uint = 0;
/// `hipEventDisableTiming`.
pub(super) const NO_TIMING: c_uint = 2;
/// `hipHostMallocPortable`, and `hipHostRegisterPortable`.
pub(super) const PORTABLE: c_uint = 1;
/// `hipIpcMemLazyEnablePeerAccess`.
pub(super) const LAZY_PEER_ACCESS: c_uint = 1;
/// `HIP_POINTER_ATTRIBUTE_BUFFER_ID`.
pub(super) const BUFFER_ID: c_int = 7;

/// `hipPointerAttribute_t`. ROCm 5 and 6 agree on the layout, not on the values of `kind`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PointerAttributes {
    pub(super) kind: c_int,
    pub(super) device: c_int,
    pub(super) device_pointer: *mut c_void,
    pub(super) host_pointer: *mut c_void,
    pub(super) managed: c_int,
    pub(super) flags: c_uint,
}

/// `hipIpcMemHandle_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle(pub(super) [c_char; 64]);

/// `hipUUID`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Uuid(pub(super) [c_char; 16]);

/// `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct HostNode {
    pub(super) function: Callback,
    pub(super) data: *mut c_void,
}

/// `hipStreamCaptureStatusActive`.
pub(super) const CAPTURE_ACTIVE: c_int = 1;
/// `hipStreamCaptureStatusInvalidated`.
pub(super) const CAPTURE_INVALIDATED: c_int = 2;
/// `hipErrorStreamCaptureInvalidated`.
pub(super) const ERROR_CAPTURE_INVALIDATED: Status = 901;
/// `hipUserObjectNoDestructorSync`.
pub(super) const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `hipGraphUserObjectMove`.
pub(super) const GRAPH_OBJECT_MOVE: c_uint = 1;

/// The file names, newest first.
const LIBRARIES: [&str; 4] =
    ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// `RTLD_NOLOAD` of the C library: only a library that is there already.
const ONLY_LOADED: c_int = 4;

functions! {
    /// The loaded functions.
    Hip of Vendor::Rocm;
    init: "hipInit" (c_uint) -> Status;
    runtime_version: "hipRuntimeGetVersion" (*mut c_int) -> Status;
    device_count: "hipGetDeviceCount" (*mut c_int) -> Status;
    get_device: "hipGetDevice" (*mut c_int) -> Status;
    set_device: "hipSetDevice" (c_int) -> Status;
    device_name: "hipDeviceGetName" (*mut c_char, c_int, c_int) -> Status;
    device_pci_bus_id: "hipDeviceGetPCIBusId" (*mut c_char, c_int, c_int) -> Status;
    device_total_memory: "hipDeviceTotalMem" (*mut usize, c_int) -> Status;
    device_uuid: "hipDeviceGetUuid" (*mut Uuid, c_int) -> Status;
    pointer_attributes: "hipPointerGetAttributes" (*mut PointerAttributes, *const c_void) -> Status;
    pointer_attribute: "hipPointerGetAttribute" (*mut c_void, c_int, *mut c_void) -> Status;
    address_range: "hipMemGetAddressRange" (*mut *mut c_void, *mut usize, *mut c_void) -> Status;
    stream_create: "hipStreamCreateWithFlags" (*mut *mut c_void, c_uint) -> Status;
    stream_write_value: "hipStreamWriteValue32" (*mut c_void, *mut c_void, u32, c_uint) -> Status;
    stream_wait_value: "hipStreamWaitValue32" (
        *mut c_void, *mut c_void, u32, c_uint, u32
    ) -> Status;
    stream_capture_info: "hipStreamGetCaptureInfo_v2" (
        *mut c_void, *mut c_int, *mut u64, *mut *mut c_void, *mut *const *mut c_void, *mut usize
    ) -> Status;
    exchange_capture_mode: "hipThreadExchangeStreamCaptureMode" (*mut c_int) -> Status;
    graph_add_host_node: "hipGraphAddHostNode" (
        *mut *mut c_void, *mut c_void, *const *mut c_void, usize, *const HostNode
    ) -> Status;
    user_object_create: "hipUserObjectCreate" (
        *mut *mut c_void, *mut c_void, Callback, c_uint, c_uint
    ) -> Status;
    graph_retain_object: "hipGraphRetainUserObject" (
        *mut c_void, *mut c_void, c_uint, c_uint
    ) -> Status;
    stream_wait_event: "hipStreamWaitEvent" (*mut c_void, *mut c_void, c_uint) -> Status;
    event_create: "hipEventCreateWithFlags" (*mut *mut c_void, c_uint) -> Status;
    event_record: "hipEventRecord" (*mut c_void, *mut c_void) -> Status;
    event_query: "hipEventQuery" (*mut c_void) -> Status;
    memcpy_async: "hipMemcpyAsync" (*mut c_void, *const c_void, usize, c_int, *mut c_void) -> Status;
    host_malloc: "hipHostMalloc" (*mut *mut c_void, usize, c_uint) -> Status;
    host_free: "hipHostFree" (*mut c_void) -> Status;
    host_register: "hipHostRegister" (*mut c_void, usize, c_uint) -> Status;
    host_unregister: "hipHostUnregister" (*mut c_void) -> Status;
    malloc: "hipMalloc" (*mut *mut c_void, usize) -> Status;
    free: "hipFree" (*mut c_void) -> Status;
    module_load: "hipModuleLoadData" (*mut *mut c_void, *const c_void) -> Status;
    module_function: "hipModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char) -> Status;
    launch_kernel: "hipModuleLaunchKernel" (
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
        *mut *mut c_void, *mut *mut c_void
    ) -> Status;
    ipc_get: "hipIpcGetMemHandle" (*mut IpcHandle, *mut c_void) -> Status;
    ipc_open: "hipIpcOpenMemHandle" (*mut *mut c_void, IpcHandle, c_uint) -> Status;
    ipc_close: "hipIpcCloseMemHandle" (*mut c_void) -> Status;
    error_name: "hipGetErrorName" (Status) -> *const c_char;
    error_text: "hipGetErrorString" (Status) -> *const c_char;
    last_error: "hipGetLastError" () -> Status;
}

impl Hip {
    /// The library that the program uses already, or else the newest there is.
    ///
    /// # Errors
    /// None can be loaded, or the one that can misses a function.
    pub(super) fn load() -> Result<Hip, Error> {
        let mut reason = String::new();
        for flags in [ONLY_LOADED | RTLD_LAZY, RTLD_LAZY | RTLD_LOCAL] {
            for name in LIBRARIES {
                // SAFETY: the library's initialisers may run in any process that uses it.
                match unsafe { Opened::open(Some(name), flags) } {
                    Ok(library) => return Hip::from(library.into()),
                    Err(error) => reason = error.to_string(),
                }
            }
        }
        Err(Error::NoLibrary {
            vendor: Vendor::Rocm,
            library: "libamdhip64.so (.7, .6, .5)",
            reason,
        })
    }
}
