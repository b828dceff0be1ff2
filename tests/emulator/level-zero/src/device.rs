//! The driver, devices, contexts.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::stream::Domain;
use hetccl_emulated_device::{Code, Vendor, entries, settings, start};

const DRIVER: usize = 0x10;
const FIRST_DEVICE: usize = 0x1000;
const DEVICE_STEP: usize = 0x10;
const MOST_DEVICES: usize = 64;
const API_VERSION: u32 = (1 << 16) | 9;
const NAME: &str = "Emulated Level Zero device";
const NAME_BYTES: usize = 256;

static INITIALIZED: AtomicBool = AtomicBool::new(false);
static CONTEXTS: Table<Context> = Table::new(1);
static DOMAINS: [OnceLock<Arc<Domain>>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];

/// What memory and queues belong to.
#[derive(Debug)]
struct Context;

/// The device with this handle.
pub(crate) fn checked(handle: usize) -> Result<usize, Code> {
    let device = handle.checked_sub(FIRST_DEVICE).ok_or(Code::INVALID_HANDLE)? / DEVICE_STEP;
    if device < settings::get().devices && handle == handle_of(device) {
        Ok(device)
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

/// A device's handle.
pub(crate) fn handle_of(device: usize) -> usize {
    FIRST_DEVICE + device * DEVICE_STEP
}

/// Refuses what is no context.
pub(crate) fn check_context(handle: usize) -> Result<(), Code> {
    if !INITIALIZED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    CONTEXTS.get(handle).map(drop)
}

/// The streams of a device.
pub(crate) fn domain(device: usize) -> &'static Arc<Domain> {
    DOMAINS[device].get_or_init(|| Domain::new(device, 0))
}

fn check_driver(handle: usize) -> Result<(), Code> {
    if !INITIALIZED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    if handle == DRIVER { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}

fn init() -> Result<(), Code> {
    if start(Vendor::LevelZero).devices == 0 {
        return Err(Code::NOT_INITIALIZED);
    }
    INITIALIZED.store(true, Ordering::Release);
    Ok(())
}

/// Level Zero's way to return arrays: the caller says how many it has room for, 0 to ask for the number.
fn list<T: Copy>(
    count: Count,
    into: Out<T>,
    all: impl ExactSizeIterator<Item = T>,
) -> Result<(), Code> {
    let (room, available) = (count.room()? as usize, all.len());
    if room == 0 || into.is_null() {
        return count.0.set(available as u32);
    }
    for (index, item) in all.take(room).enumerate() {
        into.at(index).set(item)?;
    }
    count.0.set(room.min(available) as u32)
}

/// A count that is read and written.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Count(Out<u32>);

impl Count {
    fn room(self) -> Result<u32, Code> {
        self.0.get()
    }
}

/// `ze_device_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceProperties {
    structure: u32,
    next: usize,
    kind: u32,
    vendor: u32,
    device: u32,
    flags: u32,
    sub_device: u32,
    core_clock_mhz: u32,
    most_bytes: u64,
    contexts: u32,
    priority: u32,
    threads_per_unit: u32,
    unit_width: u32,
    units_per_subslice: u32,
    subslices_per_slice: u32,
    slices: u32,
    timer_resolution: u64,
    timestamp_bits: u32,
    kernel_timestamp_bits: u32,
    uuid: [u8; 16],
    name: [u8; NAME_BYTES],
}

/// `ze_device_compute_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ComputeProperties {
    structure: u32,
    next: usize,
    group: [u32; 4],
    groups: [u32; 3],
    shared_bytes: u32,
    subgroup_sizes: u32,
    subgroups: [u32; 8],
}

/// `ze_device_memory_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryProperties {
    structure: u32,
    next: usize,
    flags: u32,
    clock_mhz: u32,
    bus_width: u32,
    bytes: u64,
    name: [u8; NAME_BYTES],
}

/// `ze_command_queue_group_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueGroupProperties {
    structure: u32,
    next: usize,
    flags: u32,
    pattern_bytes: usize,
    queues: u32,
}

/// `ze_driver_ipc_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcProperties {
    structure: u32,
    next: usize,
    flags: u32,
}

/// `ze_pci_ext_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciProperties {
    structure: u32,
    next: usize,
    /// Domain, bus, device, function.
    address: [u32; 4],
    generation: i32,
    width: i32,
    bandwidth: i64,
}

fn name() -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes[..NAME.len()].copy_from_slice(NAME.as_bytes());
    bytes
}

fn properties_of(device: usize) -> DeviceProperties {
    let mut uuid = *b"emulated-level\0\0";
    uuid[15] = device as u8;
    DeviceProperties {
        structure: 0x3,
        next: 0,
        kind: 1,
        vendor: 0x8086,
        device: 0x0bd5,
        flags: 0,
        sub_device: 0,
        core_clock_mhz: 1600,
        most_bytes: settings::get().memory_bytes as u64,
        contexts: 65536,
        priority: 0,
        threads_per_unit: 8,
        unit_width: 16,
        units_per_subslice: 8,
        subslices_per_slice: 16,
        slices: 8,
        timer_resolution: 80,
        timestamp_bits: 36,
        kernel_timestamp_bits: 32,
        uuid,
        name: name(),
    }
}

/// Structures in whose beginning the caller names the kind and a chain of further structures: those stay as they are.
fn fill<T: Chained>(into: Out<T>, mut value: T) -> Result<(), Code> {
    let before = into.get()?;
    value.take_chain(&before);
    into.set(value)
}

trait Chained: Copy {
    fn take_chain(&mut self, before: &Self);
}

macro_rules! chained {
    ($($name:ty),*) => {
        $(impl Chained for $name {
            fn take_chain(&mut self, before: &Self) {
                self.structure = before.structure;
                self.next = before.next;
            }
        })*
    };
}

chained!(
    DeviceProperties,
    ComputeProperties,
    MemoryProperties,
    QueueGroupProperties,
    IpcProperties,
    PciProperties
);

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<DeviceProperties>() == 368);
    assert!(size_of::<ComputeProperties>() == 88);
    assert!(size_of::<MemoryProperties>() == 296);
    assert!(size_of::<QueueGroupProperties>() == 40);
    assert!(size_of::<IpcProperties>() == 24);
    assert!(size_of::<PciProperties>() == 48);
};

entries! {
    fn zeInit(_flags: u32) {
        init()
    }

    fn zeInitDrivers(count: Count, drivers: Out<usize>, _description: In<u8>) {
        init()?;
        list(count, drivers, [DRIVER].into_iter())
    }

    fn zeDriverGet(count: Count, drivers: Out<usize>) {
        check_driver(DRIVER)?;
        list(count, drivers, [DRIVER].into_iter())
    }

    fn zeDriverGetApiVersion(driver: usize, version: Out<u32>) {
        check_driver(driver)?;
        version.set(API_VERSION)
    }

    fn zeDriverGetIpcProperties(driver: usize, properties: Out<IpcProperties>) {
        check_driver(driver)?;
        // Memory and event pools.
        fill(properties, IpcProperties { structure: 0, next: 0, flags: 3 })
    }

    fn zeDriverGetExtensionProperties(driver: usize, count: Count, _properties: Out<c_void>) {
        check_driver(driver)?;
        count.0.set(0)
    }

    fn zeDeviceGet(driver: usize, count: Count, devices: Out<usize>) {
        check_driver(driver)?;
        list(count, devices, (0..settings::get().devices).map(handle_of))
    }

    fn zeDeviceGetProperties(device: usize, properties: Out<DeviceProperties>) {
        fill(properties, properties_of(checked(device)?))
    }

    fn zeDeviceGetSubDevices(device: usize, count: Count, devices: Out<usize>) {
        checked(device)?;
        list(count, devices, std::iter::empty())
    }

    fn zeDevicePciGetPropertiesExt(device: usize, properties: Out<PciProperties>) {
        let address = [0, 0x80 + checked(device)? as u32, 0, 0];
        fill(properties, PciProperties { structure: 0, next: 0, address, generation: 5, width: 16, bandwidth: -1 })
    }

    fn zeDeviceGetComputeProperties(device: usize, properties: Out<ComputeProperties>) {
        checked(device)?;
        fill(properties, ComputeProperties {
            structure: 0,
            next: 0,
            group: [1024; 4],
            groups: [u32::MAX; 3],
            shared_bytes: 128 << 10,
            subgroup_sizes: 2,
            subgroups: [16, 32, 0, 0, 0, 0, 0, 0],
        })
    }

    fn zeDeviceGetMemoryProperties(device: usize, count: Count, properties: Out<MemoryProperties>) {
        checked(device)?;
        if count.room()? == 0 || properties.is_null() {
            return count.0.set(1);
        }
        let bytes = settings::get().memory_bytes as u64;
        let memory =
            MemoryProperties { structure: 0, next: 0, flags: 0, clock_mhz: 3200, bus_width: 8192, bytes, name: name() };
        fill(properties, memory)?;
        count.0.set(1)
    }

    fn zeDeviceGetCommandQueueGroupProperties(device: usize, count: Count, properties: Out<QueueGroupProperties>) {
        checked(device)?;
        if count.room()? == 0 || properties.is_null() {
            return count.0.set(1);
        }
        // Compute and copy.
        fill(properties, QueueGroupProperties { structure: 0, next: 0, flags: 3, pattern_bytes: 128, queues: 4 })?;
        count.0.set(1)
    }

    fn zeDeviceCanAccessPeer(device: usize, peer: usize, can: Out<u8>) {
        checked(device)?;
        checked(peer)?;
        can.set(1)
    }

    fn zeDeviceGetStatus(device: usize) {
        checked(device).map(drop)
    }

    fn zeContextCreate(driver: usize, _description: In<u8>, context: Out<usize>) {
        check_driver(driver)?;
        context.check()?;
        context.set(CONTEXTS.insert(Arc::new(Context)))
    }

    fn zeContextDestroy(context: usize) {
        CONTEXTS.remove(context).map(drop)
    }

    fn zeContextGetStatus(context: usize) {
        check_context(context)
    }
}
