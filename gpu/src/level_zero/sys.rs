//! Level Zero's functions, found at run time in its loader, `libze_loader.so.1`.
//!
//! Handles and addresses are numbers here: this crate only hands them back. Source: Level Zero specification 1.6; names,
//! signatures and values there.

use std::ffi::{c_char, c_void};

use libloading::Library;

use super::result::Status;
use crate::error::Error;
use crate::foreign::functions;
use crate::vendor::Vendor;

const LIBRARY: &str = "libze_loader.so.1";

/// `ZE_INIT_FLAG_GPU_ONLY`.
pub(super) const GPU_ONLY: u32 = 1;
/// `ZE_DEVICE_TYPE_GPU`.
pub(super) const GPU: u32 = 1;
/// `ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE`.
pub(super) const COMPUTE: u32 = 1;
/// `ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS`.
pub(super) const ASYNCHRONOUS: u32 = 2;
/// `ZE_EVENT_POOL_FLAG_HOST_VISIBLE`.
pub(super) const HOST_VISIBLE: u32 = 1;
/// `ZE_EVENT_SCOPE_FLAG_HOST`.
pub(super) const TO_HOST: u32 = 4;
/// `ZE_MEMORY_TYPE_DEVICE` and `ZE_MEMORY_TYPE_SHARED`.
pub(super) const DEVICE_MEMORY: u32 = 2;
pub(super) const SHARED_MEMORY: u32 = 3;
/// `ZE_MODULE_FORMAT_IL_SPIRV`.
pub(super) const SPIRV: u32 = 0;
/// `ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST`, `_DEVICE` and `_SHARED`.
pub(super) const ANY_MEMORY: u32 = 7;
/// Bytes of `ze_ipc_mem_handle_t`.
pub(super) const IPC_BYTES: usize = 64;

/// How every structure begins: `stype` and `pNext`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    kind: u32,
    next: usize,
}

impl Head {
    const fn new(kind: u32) -> Head {
        Head { kind, next: 0 }
    }

    pub(super) const DEVICE: Head = Head::new(0x3);
    pub(super) const QUEUE_GROUP: Head = Head::new(0x6);
    pub(super) const DEVICE_MEMORY: Head = Head::new(0x7);
    pub(super) const CONTEXT: Head = Head::new(0xd);
    pub(super) const QUEUE: Head = Head::new(0xe);
    pub(super) const EVENT_POOL: Head = Head::new(0x10);
    pub(super) const EVENT: Head = Head::new(0x11);
    pub(super) const DEVICE_ALLOCATION: Head = Head::new(0x15);
    pub(super) const HOST_ALLOCATION: Head = Head::new(0x16);
    pub(super) const ALLOCATION: Head = Head::new(0x17);
    pub(super) const MODULE: Head = Head::new(0x1b);
    pub(super) const KERNEL: Head = Head::new(0x1d);
    pub(super) const PCI: Head = Head::new(0x1_0008);
}

/// `ze_context_desc_t`, `ze_host_mem_alloc_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    pub(super) head: Head,
    pub(super) flags: u32,
}

/// `ze_device_mem_alloc_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceAllocation {
    pub(super) head: Head,
    pub(super) flags: u32,
    pub(super) ordinal: u32,
}

/// `ze_device_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceProperties {
    pub(super) head: Head,
    pub(super) kind: u32,
    /// Vendor, device, flags, number of the sub-device, clock.
    pub(super) numbers: [u32; 5],
    pub(super) largest_allocation_bytes: u64,
    /// Contexts, priority, threads, units of several sorts.
    pub(super) more_numbers: [u32; 7],
    pub(super) timer_resolution: u64,
    pub(super) timer_bits: [u32; 2],
    pub(super) uuid: [u8; 16],
    pub(super) name: [c_char; 256],
}

/// `ze_device_memory_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryProperties {
    pub(super) head: Head,
    /// Flags, clock, width of the bus.
    pub(super) numbers: [u32; 3],
    pub(super) bytes: u64,
    pub(super) name: [c_char; 256],
}

/// `ze_pci_ext_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PciProperties {
    pub(super) head: Head,
    /// Domain, bus, device, function.
    pub(super) address: [u32; 4],
    pub(super) generation: i32,
    pub(super) width: i32,
    pub(super) bandwidth: i64,
}

/// `ze_command_queue_group_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueGroup {
    pub(super) head: Head,
    pub(super) flags: u32,
    pub(super) pattern_bytes: usize,
    pub(super) queues: u32,
}

/// `ze_command_queue_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: Head,
    pub(super) ordinal: u32,
    pub(super) index: u32,
    pub(super) flags: u32,
    pub(super) mode: u32,
    pub(super) priority: u32,
}

/// `ze_event_pool_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPool {
    pub(super) head: Head,
    pub(super) flags: u32,
    pub(super) count: u32,
}

/// `ze_event_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) head: Head,
    pub(super) index: u32,
    pub(super) signal: u32,
    pub(super) wait: u32,
}

/// `ze_memory_allocation_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) head: Head,
    pub(super) kind: u32,
    pub(super) id: u64,
    pub(super) page_bytes: u64,
}

/// `ze_module_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    pub(super) head: Head,
    pub(super) format: u32,
    pub(super) len_bytes: usize,
    pub(super) image: *const u8,
    pub(super) flags: *const c_char,
    pub(super) constants: usize,
}

/// `ze_kernel_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) head: Head,
    pub(super) flags: u32,
    pub(super) name: *const c_char,
}

/// `ze_ipc_mem_handle_t`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IpcHandle(pub(super) [u8; IPC_BYTES]);

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<Plain>() == 24 && size_of::<DeviceAllocation>() == 24);
    assert!(size_of::<DeviceProperties>() == 368 && size_of::<MemoryProperties>() == 296);
    assert!(size_of::<PciProperties>() == 48 && size_of::<QueueGroup>() == 40);
    assert!(size_of::<Queue>() == 40 && size_of::<EventPool>() == 24 && size_of::<Event>() == 32);
    assert!(
        size_of::<Allocation>() == 40 && size_of::<Module>() == 56 && size_of::<Kernel>() == 32
    );
};

functions! {
    /// The loaded functions.
    LevelZero of Vendor::LevelZero;
    init: "zeInit" (u32) -> Status;
    drivers: "zeDriverGet" (*mut u32, *mut usize) -> Status;
    api_version: "zeDriverGetApiVersion" (usize, *mut u32) -> Status;
    devices: "zeDeviceGet" (usize, *mut u32, *mut usize) -> Status;
    sub_devices: "zeDeviceGetSubDevices" (usize, *mut u32, *mut usize) -> Status;
    device_properties: "zeDeviceGetProperties" (usize, *mut DeviceProperties) -> Status;
    memory_properties: "zeDeviceGetMemoryProperties" (usize, *mut u32, *mut MemoryProperties) -> Status;
    pci_properties: "zeDevicePciGetPropertiesExt" (usize, *mut PciProperties) -> Status;
    queue_groups: "zeDeviceGetCommandQueueGroupProperties" (usize, *mut u32, *mut QueueGroup) -> Status;
    context_create: "zeContextCreate" (usize, *const Plain, *mut usize) -> Status;
    allocation_properties: "zeMemGetAllocProperties" (usize, usize, *mut Allocation, *mut usize) -> Status;
    address_range: "zeMemGetAddressRange" (usize, usize, *mut usize, *mut usize) -> Status;
    allocate_device: "zeMemAllocDevice"
        (usize, *const DeviceAllocation, usize, usize, usize, *mut usize) -> Status;
    allocate_host: "zeMemAllocHost" (usize, *const Plain, usize, usize, *mut usize) -> Status;
    free: "zeMemFree" (usize, usize) -> Status;
    ipc_get: "zeMemGetIpcHandle" (usize, usize, *mut IpcHandle) -> Status;
    ipc_open: "zeMemOpenIpcHandle" (usize, usize, IpcHandle, u32, *mut usize) -> Status;
    ipc_close: "zeMemCloseIpcHandle" (usize, usize) -> Status;
    list_create: "zeCommandListCreateImmediate" (usize, usize, *const Queue, *mut usize) -> Status;
    append_barrier: "zeCommandListAppendBarrier" (usize, usize, u32, *const usize) -> Status;
    append_copy: "zeCommandListAppendMemoryCopy"
        (usize, usize, usize, usize, usize, u32, *const usize) -> Status;
    append_kernel: "zeCommandListAppendLaunchKernel"
        (usize, usize, *const [u32; 3], usize, u32, *const usize) -> Status;
    pool_create: "zeEventPoolCreate" (usize, *const EventPool, u32, *const usize, *mut usize) -> Status;
    event_create: "zeEventCreate" (usize, *const Event, *mut usize) -> Status;
    event_reset: "zeEventHostReset" (usize) -> Status;
    event_query: "zeEventQueryStatus" (usize) -> Status;
    module_create: "zeModuleCreate" (usize, usize, *const Module, *mut usize, *mut usize) -> Status;
    log_text: "zeModuleBuildLogGetString" (usize, *mut usize, *mut c_char) -> Status;
    log_destroy: "zeModuleBuildLogDestroy" (usize) -> Status;
    kernel_create: "zeKernelCreate" (usize, *const Kernel, *mut usize) -> Status;
    kernel_access: "zeKernelSetIndirectAccess" (usize, u32) -> Status;
    kernel_group: "zeKernelSetGroupSize" (usize, u32, u32, u32) -> Status;
    kernel_argument: "zeKernelSetArgumentValue" (usize, u32, usize, *const c_void) -> Status;
}

impl LevelZero {
    /// Loads the loader; the drivers come with `zeInit`.
    ///
    /// # Errors
    /// It can't be loaded, or misses a function.
    pub(super) fn load() -> Result<LevelZero, Error> {
        // SAFETY: the library's initialisers may run in any process that uses it.
        match unsafe { Library::new(LIBRARY) } {
            Ok(library) => LevelZero::from(library),
            Err(error) => Err(Error::NoLibrary {
                vendor: Vendor::LevelZero,
                library: LIBRARY,
                reason: error.to_string(),
            }),
        }
    }
}
