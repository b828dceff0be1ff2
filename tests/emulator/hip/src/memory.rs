//! Memory, and what a pointer is.

use std::ffi::c_void;

use hetccl_emulated_device::abi::{In, Out};
use hetccl_emulated_device::memory::{self, Kind};
use hetccl_emulated_device::{Code, entries};

use crate::device::{checked, current, domain, owner};
use crate::stream;

const PITCH_BYTES: usize = 256;
const SIGNAL_MEMORY: u32 = 2;
const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;

/// `hipPointerAttribute_t` of ROCm 6.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PointerAttributes {
    kind: u32,
    device: i32,
    device_pointer: usize,
    host_pointer: usize,
    is_managed: i32,
    flags: u32,
}

/// `hipMemoryType`.
fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Pinned | Kind::Registered => 1,
        Kind::Managed => 3,
        _ => 2,
    }
}

fn allocate(pointer: Out<usize>, kind: Kind, bytes: usize, flags: u32) -> Result<(), Code> {
    pointer.check()?;
    if bytes == 0 {
        return pointer.set(0);
    }
    pointer.set(memory::allocate(kind, bytes, owner(flags)?)?.base)
}

fn allocate_host(pointer: Out<usize>, kind: Kind, bytes: usize, flags: u32) -> Result<(), Code> {
    pointer.check()?;
    if bytes == 0 {
        return pointer.set(0);
    }
    pointer.set(memory::allocate_host(kind, bytes, owner(flags)?)?.base)
}

/// Waits for all work of the memory's device, as freeing does, and takes the memory away.
fn free(pointer: usize, refusal: Code, wanted: impl Fn(Kind) -> bool) -> Result<(), Code> {
    current()?;
    if pointer == 0 {
        return Ok(());
    }
    let found = memory::find(pointer)
        .filter(|found| found.base == pointer && wanted(found.kind))
        .ok_or(refusal)?;
    domain(found.device).synchronize();
    memory::release(pointer, wanted)?;
    Ok(())
}

/// By the numbers of `hipPointer_attribute`.
fn attribute(data: Out<c_void>, attribute: i32, pointer: usize) -> Result<(), Code> {
    let found = memory::find(pointer).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1 | 17 => data.cast().set(0_usize),
        2 => data.cast().set(type_of(found.kind)),
        3 => data.cast().set(pointer),
        4 if found.kind.on_device() => Err(Code::INVALID_VALUE),
        4 => data.cast().set(pointer),
        6 => data.cast().set(0_u32),
        7 => data.cast().set(found.number),
        8 => data.cast().set(u32::from(found.kind == Kind::Managed)),
        9 => data.cast().set(found.device as i32),
        10 => data.cast().set(found.kind == Kind::Device),
        11 => data.cast().set(found.base),
        12 => data.cast().set(found.bytes),
        13 => data.cast().set(true),
        14 => data.cast().set(u64::from(found.kind == Kind::Mapped)),
        15 => data.cast().set(false),
        16 => data.cast().set(3_u32),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<PointerAttributes>() == 32);
};

entries! {
    fn hipMalloc(pointer: Out<usize>, bytes: usize) {
        allocate(pointer, Kind::Device, bytes, 0)
    }

    fn hipExtMallocWithFlags(pointer: Out<usize>, bytes: usize, flags: u32) {
        if flags == SIGNAL_MEMORY && bytes != 8 || flags > 4 {
            return Err(Code::INVALID_VALUE);
        }
        allocate(pointer, Kind::Device, bytes, flags)
    }

    fn hipMallocPitch(pointer: Out<usize>, pitch: Out<usize>, width: usize, height: usize) {
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(Code::INVALID_VALUE)?;
        pitch.set(row)?;
        allocate(pointer, Kind::Device, row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?, 0)
    }

    fn hipFree(pointer: usize) {
        free(pointer, Code::INVALID_DEVICE_POINTER, |kind| matches!(kind, Kind::Device | Kind::Pool | Kind::Managed))
    }

    fn hipHostMalloc / hipHostAlloc / hipExtHostAlloc(pointer: Out<usize>, bytes: usize, flags: u32) {
        allocate_host(pointer, Kind::Pinned, bytes, flags)
    }

    fn hipMallocHost / hipMemAllocHost(pointer: Out<usize>, bytes: usize) {
        allocate_host(pointer, Kind::Pinned, bytes, 0)
    }

    fn hipHostFree / hipFreeHost(pointer: usize) {
        free(pointer, Code::INVALID_VALUE, |kind| kind == Kind::Pinned)
    }

    fn hipMallocManaged(pointer: Out<usize>, bytes: usize, flags: u32) {
        if !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
            return Err(Code::INVALID_VALUE);
        }
        allocate_host(pointer, Kind::Managed, bytes, flags)
    }

    fn hipHostRegister(pointer: usize, bytes: usize, flags: u32) {
        memory::register(pointer, bytes, owner(flags)?).map(drop)
    }

    fn hipHostUnregister(pointer: usize) {
        free(pointer, Code::HOST_MEMORY_NOT_REGISTERED, |kind| kind == Kind::Registered)
    }

    fn hipHostGetDevicePointer(device: Out<usize>, pointer: usize, flags: u32) {
        let known = memory::find(pointer).filter(|found| matches!(found.kind, Kind::Pinned | Kind::Registered));
        if flags != 0 || known.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        device.set(pointer)
    }

    fn hipHostGetFlags(flags: Out<u32>, pointer: usize) {
        let found = memory::find(pointer).filter(|found| !found.kind.on_device()).ok_or(Code::INVALID_VALUE)?;
        flags.set(found.flags)
    }

    fn hipMallocAsync = hipMallocAsync_spt(pointer: Out<usize>, bytes: usize, stream: usize) {
        pointer.check()?;
        let device = stream::get(stream)?.domain()?.device;
        if bytes == 0 {
            return pointer.set(0);
        }
        let owner = memory::Owner { device, context: 0, flags: 0 };
        pointer.set(memory::allocate(Kind::Pool, bytes, owner)?.base)
    }

    fn hipFreeAsync = hipFreeAsync_spt(pointer: usize, stream: usize) {
        let stream = stream::get(stream)?;
        let freeable = |kind| matches!(kind, Kind::Device | Kind::Pool);
        memory::find(pointer).filter(|found| found.base == pointer && freeable(found.kind)).ok_or(Code::INVALID_VALUE)?;
        stream.enqueue(move || drop(memory::release(pointer, freeable)))?;
        Ok(())
    }

    fn hipMemGetInfo(free: Out<usize>, total: Out<usize>) {
        let (free_bytes, total_bytes) = memory::free_and_total(current()?);
        free.set(free_bytes)?;
        total.set(total_bytes)
    }

    fn hipMemPtrGetInfo(pointer: usize, bytes: Out<usize>) {
        bytes.set(memory::find(pointer).ok_or(Code::INVALID_VALUE)?.bytes)
    }

    fn hipMemGetAddressRange(base: Out<usize>, bytes: Out<usize>, pointer: usize) {
        let found = memory::find(pointer).filter(|found| found.kind != Kind::Registered).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(found.base);
        bytes.set_if_wanted(found.bytes);
        Ok(())
    }

    fn hipPointerGetAttributes(attributes: Out<PointerAttributes>, pointer: usize) {
        attributes.check()?;
        let found = memory::find(pointer).ok_or(Code::INVALID_VALUE)?;
        attributes.set(PointerAttributes {
            kind: type_of(found.kind),
            device: found.device as i32,
            device_pointer: pointer,
            host_pointer: if found.kind.on_device() { 0 } else { pointer },
            is_managed: i32::from(found.kind == Kind::Managed),
            flags: found.flags,
        })
    }

    fn hipPointerGetAttribute(data: Out<c_void>, which: i32, pointer: usize) {
        attribute(data, which, pointer)
    }

    fn hipDrvPointerGetAttributes(count: u32, which: In<i32>, data: In<Out<c_void>>, pointer: usize) {
        for index in 0..count as usize {
            attribute(data.at(index)?, which.at(index)?, pointer)?;
        }
        Ok(())
    }

    fn hipMemPrefetchAsync = hipMemPrefetchAsync_spt(pointer: usize, bytes: usize, _device: i32, stream: usize) {
        stream::get(stream)?;
        let managed = memory::find(pointer).filter(|found| found.kind == Kind::Managed);
        managed.filter(|found| pointer + bytes <= found.end()).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn hipMemAdvise(pointer: usize, bytes: usize, _advice: i32, device: i32) {
        checked(device.max(0))?;
        let managed = memory::find(pointer).filter(|found| found.kind == Kind::Managed);
        managed.filter(|found| pointer + bytes <= found.end()).map(drop).ok_or(Code::INVALID_VALUE)
    }
}
