//! Devices.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, OnceLock};

use hetccl_emulated_device::abi::{Out, Text};
use hetccl_emulated_device::stream::Domain;
use hetccl_emulated_device::{Code, entries, memory, settings};

const RUNTIME_VERSION: i32 = 60_032_830;
const FIRST_BUS: usize = 0x80;
const MOST_DEVICES: usize = 64;
const NAME: &str = "Emulated HIP device";
const ARCHITECTURE: &str = "gfx942:sramecc+:xnack-";

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

static DOMAINS: [OnceLock<Arc<Domain>>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];
static PEERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The number of a device that exists.
pub(crate) fn checked(device: i32) -> Result<usize, Code> {
    let devices = settings::get().devices;
    if devices == 0 {
        return Err(Code::NO_DEVICE);
    }
    usize::try_from(device).ok().filter(|&device| device < devices).ok_or(Code::INVALID_DEVICE)
}

/// The calling thread's device.
pub(crate) fn current() -> Result<usize, Code> {
    checked(CURRENT.get() as i32)
}

/// The streams of a device.
pub(crate) fn domain(device: usize) -> &'static Arc<Domain> {
    DOMAINS[device].get_or_init(|| Domain::new(device, 0))
}

/// What new memory of the current device notes.
pub(crate) fn owner(flags: u32) -> Result<memory::Owner, Code> {
    Ok(memory::Owner { device: current()?, context: 0, flags })
}

fn bus_id(device: usize) -> String {
    format!("0000:{:02x}:00.0", FIRST_BUS + device)
}

fn uuid_of(device: usize) -> [u8; 16] {
    let mut bytes = *b"emulated-hip--\0\0";
    bytes[15] = device as u8;
    bytes
}

/// By the numbers of `hipDeviceAttribute_t`; values as of an MI300X. What the emulator does not have is 0.
fn attribute_of(device: usize, attribute: i32) -> Result<i32, Code> {
    Ok(match attribute {
        0 | 3 | 4 | 8 | 9 | 24 | 78 | 85 | 88 | 89 | 90 => 1, // ECC, mapped and registered host memory, managed memory,
        // priorities, unified addressing, pools, virtual memory
        2 => 8,         // copy engines
        5 => 2_100_000, // clock, kHz
        19 => 4 << 20,  // L2
        23 => 9,        // gfx942
        61 => 4,
        26..=28 | 56 => 1024,              // threads of a block
        29..=31 | 58 => i32::MAX,          // grid, pitch
        57 => 2048,                        // threads per multiprocessor
        59 => 8192,                        // memory bus width
        60 => 1_300_000,                   // memory clock, kHz
        63 | 10015 => 304,                 // multiprocessors
        67 => (FIRST_BUS + device) as i32, // PCI bus
        71 | 72 => 65536,                  // registers
        74..=76 | 10002 => 64 << 10,       // shared memory
        83 => i32::MAX,                    // constant memory
        84 => i32::try_from(settings::get().memory_bytes).unwrap_or(i32::MAX),
        87 => 64,                   // wavefront
        10011 | 10013 | 10016 => 1, // large BAR, stream waits, fine-grained memory
        10017 => 100_000,           // wall clock, kHz
        0..=91 | 10000..=10017 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

const PROPERTIES_BYTES: usize = 1472;

/// `hipDeviceProp_tR0600`: each number at its place in the structure.
fn properties_of(device: usize) -> [u8; PROPERTIES_BYTES] {
    let mut bytes = [0; PROPERTIES_BYTES];
    let mut put =
        |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(0, NAME.as_bytes());
    put(256, &uuid_of(device));
    put(1160, ARCHITECTURE.as_bytes());
    let sizes = [
        (288, settings::get().memory_bytes),
        (296, 64 << 10),
        (352, i32::MAX as usize),
        (1416, 64 << 10),
    ];
    for (offset, value) in sizes {
        put(offset, &value.to_ne_bytes());
    }
    let numbers = [
        (304, 65536), // registers per block
        (308, 64),    // wavefront
        (320, 1024),  // threads per block
        (324, 1024),
        (328, 1024),
        (332, 1024), // block
        (336, i32::MAX),
        (340, 65536),
        (344, 65536),     // grid
        (348, 2_100_000), // clock, kHz
        (360, 9),
        (364, 4),                           // gfx942
        (388, 304),                         // multiprocessors
        (400, 1),                           // mapped host memory
        (576, 1),                           // concurrent kernels
        (584, (FIRST_BUS + device) as i32), // PCI bus
        (600, 8),                           // copy engines
        (604, 1),                           // unified addressing
        (608, 1_300_000),
        (612, 8192),    // memory clock and bus
        (616, 4 << 20), // L2
        (624, 2048),    // threads per multiprocessor
        (652, 1),       // managed memory
        (728, 1),       // host registration
        (744, 1),       // memory pools
        (768, 1),       // IPC events
        (1464, 1),      // large BAR
    ];
    for (offset, value) in numbers {
        put(offset, &i32::to_ne_bytes(value));
    }
    bytes
}

entries! {
    fn hipInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        checked(0).map(drop)
    }

    fn hipDriverGetVersion(version: Out<i32>) {
        version.set(RUNTIME_VERSION)
    }

    fn hipRuntimeGetVersion(version: Out<i32>) {
        version.set(RUNTIME_VERSION)
    }

    fn hipGetDeviceCount(count: Out<i32>) {
        let devices = settings::get().devices;
        count.set(devices as i32)?;
        if devices == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }
    }

    fn hipSetDevice(device: i32) {
        CURRENT.set(checked(device)?);
        Ok(())
    }

    fn hipGetDevice(device: Out<i32>) {
        device.set(current()? as i32)
    }

    fn hipDeviceGet(device: Out<i32>, ordinal: i32) {
        device.set(checked(ordinal)? as i32)
    }

    fn hipDeviceGetName(name: Out<c_char>, bytes: i32, device: i32) {
        checked(device)?;
        name.set_text(bytes, NAME)
    }

    fn hipDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) {
        uuid.set(uuid_of(checked(device)?))
    }

    fn hipDeviceTotalMem(bytes: Out<usize>, device: i32) {
        checked(device)?;
        bytes.set(settings::get().memory_bytes)
    }

    fn hipDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        checked(device)?;
        major.set(9)?;
        minor.set(4)
    }

    fn hipDeviceGetPCIBusId(id: Out<c_char>, bytes: i32, device: i32) {
        id.set_text(bytes, &bus_id(checked(device)?))
    }

    fn hipDeviceGetByPCIBusId(device: Out<i32>, id: Text) {
        let id = id.get()?;
        let found = (0..settings::get().devices).find(|&device| bus_id(device).eq_ignore_ascii_case(id));
        device.set(found.ok_or(Code::INVALID_VALUE)? as i32)
    }

    fn hipDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        value.set(attribute_of(checked(device)?, attribute)?)
    }

    fn hipGetDevicePropertiesR0600(properties: Out<[u8; PROPERTIES_BYTES]>, device: i32) {
        properties.set(properties_of(checked(device)?))
    }

    fn hipDeviceSynchronize() {
        domain(current()?).synchronize();
        Ok(())
    }

    fn hipDeviceReset() {
        domain(current()?).synchronize();
        let device = current()?;
        for found in memory::all(|found| found.device == device && found.kind != memory::Kind::Mapped) {
            let _ = memory::release(found.base, |_| true);
        }
        Ok(())
    }

    fn hipGetDeviceFlags(flags: Out<u32>) {
        current()?;
        flags.set(0)
    }

    fn hipSetDeviceFlags(_flags: u32) {
        current().map(drop)
    }

    fn hipDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.set_if_wanted(1);
        greatest.set_if_wanted(-1);
        Ok(())
    }

    fn hipDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        can.set(i32::from(checked(device)? != checked(peer)?))
    }

    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) {
        let pair = (current()?, checked(peer)?);
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if pair.0 == pair.1 {
            return Err(Code::INVALID_DEVICE);
        }
        let mut peers = PEERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if peers.contains(&pair) {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(pair);
        Ok(())
    }

    fn hipDeviceDisablePeerAccess(peer: i32) {
        let pair = (current()?, checked(peer)?);
        let mut peers = PEERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let position = peers.iter().position(|&enabled| enabled == pair).ok_or(Code::PEER_ACCESS_NOT_ENABLED)?;
        peers.remove(position);
        Ok(())
    }

    fn hipDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, from: i32, to: i32) {
        if checked(from)? == checked(to)? {
            return Err(Code::INVALID_DEVICE);
        }
        // Performance rank, access, native atomics, access to arrays.
        value.set(match attribute {
            0 => 0,
            1..=3 => 1,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn hipExtGetLinkTypeAndHopCount(from: i32, to: i32, link: Out<u32>, hops: Out<u32>) {
        const XGMI: u32 = 4;
        if checked(from)? == checked(to)? {
            return Err(Code::INVALID_VALUE);
        }
        link.set(XGMI)?;
        hops.set(1)
    }
}
