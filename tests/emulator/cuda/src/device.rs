//! `cuInit` and devices.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use hetccl_emulated_device::abi::{Out, Text};
use hetccl_emulated_device::{Code, Vendor, entries, settings, start};

use crate::entry::INITIALIZED;

const DRIVER_VERSION: i32 = 12040;
const FIRST_BUS: usize = 0x10;

/// The number of a device that exists.
pub(crate) fn checked(device: i32) -> Result<usize, Code> {
    usize::try_from(device)
        .ok()
        .filter(|&device| device < settings::get().devices)
        .ok_or(Code::INVALID_DEVICE)
}

entries! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if start(Vendor::Cuda).devices == 0 {
            return Err(Code::NO_DEVICE);
        }
        INITIALIZED.store(true, Ordering::Release);
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.set(DRIVER_VERSION)
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        checked(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        count.set(settings::get().devices as i32)
    }

    fn cuDeviceGetName(name: Out<c_char>, bytes: i32, device: i32) {
        checked(device)?;
        name.set_text(bytes, "Emulated CUDA device")
    }

    fn cuDeviceGetUuid / cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) {
        let mut bytes = *b"emulated-cuda-\0\0";
        bytes[15] = checked(device)? as u8;
        uuid.set(bytes)
    }

    fn cuDeviceGetLuid(_luid: Out<c_char>, _mask: Out<u32>, _device: i32) {
        Err(Code::NOT_SUPPORTED)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        checked(device)?;
        bytes.set(settings::get().memory_bytes)
    }

    fn cuDeviceGetPCIBusId(id: Out<c_char>, bytes: i32, device: i32) {
        id.set_text(bytes, &bus_id(checked(device)?))
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) {
        let id = id.get()?;
        let found = (0..settings::get().devices).find(|&device| bus_id(device).eq_ignore_ascii_case(id));
        device.set(found.ok_or(Code::INVALID_DEVICE)? as i32)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        value.set(attribute_of(checked(device)?, attribute)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        checked(device)?;
        major.set(9)?;
        minor.set(0)
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        can.set(i32::from(checked(device)? != checked(peer)?))
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, from: i32, to: i32) {
        if checked(from)? == checked(to)? {
            return Err(Code::INVALID_DEVICE);
        }
        // Performance rank, access, native atomics, access to arrays.
        value.set(match attribute {
            1 => 0,
            2..=4 => 1,
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}

fn bus_id(device: usize) -> String {
    format!("0000:{:02X}:00.0", FIRST_BUS + device)
}

/// By the numbers of `CUdevice_attribute`; values as of an H100. What the emulator does not have is 0.
fn attribute_of(device: usize, attribute: i32) -> Result<i32, Code> {
    Ok(match attribute {
        1..=3 => 1024,                     // threads per block, block x and y
        4 => 64,                           // block z
        5 => i32::MAX,                     // grid x
        6 | 7 => 65535,                    // grid y and z
        8 => 48 << 10,                     // shared memory per block
        9 => 64 << 10,                     // constant memory
        10 => 32,                          // warp
        11 => i32::MAX,                    // pitch
        12 | 82 => 65536,                  // registers per block, per multiprocessor
        13 => 1_980_000,                   // clock, kHz
        14 | 30 => 512,                    // texture and surface alignment
        51 => 32,                          // texture pitch alignment
        16 => 132,                         // multiprocessors
        15 | 19 | 31 | 32 | 41 => 1, // overlap, mapped host memory, concurrent kernels, ECC, unified addressing
        33 => (FIRST_BUS + device) as i32, // PCI bus
        34 | 50 => 0,                // PCI device and domain
        36 => 2_619_000,             // memory clock, kHz
        37 => 5120,                  // memory bus width
        38 => 50 << 20,              // L2
        39 => 2048,                  // threads per multiprocessor
        40 => 3,                     // copy engines
        75 => 9,                     // compute capability
        76 => 0,
        78..=80 => 1,                  // stream priorities, L1 caches
        81 => 228 << 10,               // shared memory per multiprocessor
        83 | 89 | 90 | 91 => 1, // managed memory, concurrently, pre-emption, registered host pointers
        86 => 0,                // native atomics over the bus
        92 | 93 | 94 | 122 | 123 => 1, // stream memory operations, 64 bit, NOR
        95 => 0,                // cooperative launch
        97 => 227 << 10,        // shared memory per block, on request
        98 | 99 => 1,           // flush of remote writes, host registration
        102 | 103 => 1,         // virtual memory management, by descriptor
        106 => 32,              // blocks per multiprocessor
        110 | 116 => 0,         // GPUDirect RDMA
        111 => 1024,            // reserved shared memory
        115 => 1,               // memory pools
        119 => 0,               // handle types of pools
        125 => 1,               // IPC events
        17
        | 18
        | 20..=29
        | 35
        | 42..=49
        | 52..=74
        | 77
        | 84
        | 85
        | 87
        | 88
        | 96
        | 100
        | 101
        | 104
        | 105 => 0,
        107..=109 | 112..=114 | 117 | 118 | 120 | 121 | 124 | 126..=134 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}
