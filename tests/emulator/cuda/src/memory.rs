//! Memory: device, pinned, managed and pool memory.

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::memory::{self, Kind};
use hetccl_emulated_device::{Code, entries, settings};
use std::sync::Arc;

use crate::context::current;
use crate::device::checked;
use crate::stream;

const HOST_ALLOC_FLAGS: u32 = 7;
const HOST_REGISTER_FLAGS: u32 = 15;
const PITCH_BYTES: usize = 512;

/// A memory pool. All take from the device's memory directly; the handles are for programs that ask for one.
#[derive(Debug)]
struct Pool {
    device: usize,
}

static POOLS: Table<Pool> = Table::new(2);
static DEFAULT_POOLS: std::sync::Mutex<Vec<(usize, usize)>> = std::sync::Mutex::new(Vec::new());

fn allocate_host(pointer: Out<usize>, bytes: usize, flags: u32) -> Result<(), Code> {
    pointer.check()?;
    let context = current()?;
    if flags & !HOST_ALLOC_FLAGS != 0 || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    pointer.set(memory::allocate_host(Kind::Pinned, bytes, context.owner(flags))?.base)
}

/// Waits for all work, as freeing memory does, and takes it away.
fn free(pointer: usize, wanted: impl Fn(Kind) -> bool) -> Result<(), Code> {
    let context = current()?;
    let found = memory::find(pointer).filter(|found| found.base == pointer && wanted(found.kind));
    let found = found.ok_or(Code::INVALID_VALUE)?;
    let owner = crate::context::with_handle(found.context).unwrap_or(context);
    let _locked = owner.domain.lock_out();
    owner.domain.synchronize();
    memory::release(pointer, wanted)?;
    Ok(())
}

/// Pool memory is usable at once here; freeing waits its turn in the stream.
fn allocate_in_stream(pointer: Out<usize>, bytes: usize, stream: usize) -> Result<(), Code> {
    pointer.check()?;
    let context = stream::context_of(stream)?;
    pointer.set(memory::allocate(Kind::Pool, bytes, context.owner(0))?.base)
}

fn default_pool(device: i32) -> Result<usize, Code> {
    let device = checked(device)?;
    let mut pools = DEFAULT_POOLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(&(_, pool)) = pools.iter().find(|(of, _)| *of == device) {
        return Ok(pool);
    }
    let pool = POOLS.insert(Arc::new(Pool { device }));
    pools.push((device, pool));
    Ok(pool)
}

entries! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (free_bytes, total_bytes) = memory::free_and_total(current()?.device);
        free.set(free_bytes)?;
        total.set(total_bytes)
    }

    fn cuMemAlloc_v2(pointer: Out<usize>, bytes: usize) {
        pointer.check()?;
        pointer.set(memory::allocate(Kind::Device, bytes, current()?.owner(0))?.base)
    }

    fn cuMemAllocPitch_v2(pointer: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        pointer.check()?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(Code::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
        pitch.set(row)?;
        pointer.set(memory::allocate(Kind::Device, bytes, current()?.owner(0))?.base)
    }

    fn cuMemFree_v2(pointer: usize) {
        if pointer == 0 {
            return current().map(drop);
        }
        free(pointer, |kind| matches!(kind, Kind::Device | Kind::Pool | Kind::Managed))
    }

    fn cuMemGetAddressRange_v2(base: Out<usize>, bytes: Out<usize>, pointer: usize) {
        current()?;
        let found = memory::find(pointer).filter(|found| found.kind != Kind::Registered).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(found.base);
        bytes.set_if_wanted(found.bytes);
        Ok(())
    }

    fn cuMemAllocHost_v2(pointer: Out<usize>, bytes: usize) {
        allocate_host(pointer, bytes, 0)
    }

    fn cuMemHostAlloc(pointer: Out<usize>, bytes: usize, flags: u32) {
        allocate_host(pointer, bytes, flags)
    }

    fn cuMemFreeHost(pointer: usize) {
        free(pointer, |kind| kind == Kind::Pinned)
    }

    fn cuMemHostRegister_v2 / cuMemHostRegister(pointer: usize, bytes: usize, flags: u32) {
        let context = current()?;
        if flags & !HOST_REGISTER_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        memory::register(pointer, bytes, context.owner(flags)).map(drop)
    }

    fn cuMemHostUnregister(pointer: usize) {
        current()?;
        let found = memory::find(pointer).filter(|found| found.kind == Kind::Registered);
        found.filter(|found| found.base == pointer).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
        free(pointer, |kind| kind == Kind::Registered)
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<usize>, pointer: usize, flags: u32) {
        current()?;
        let found = memory::find(pointer).filter(|found| matches!(found.kind, Kind::Pinned | Kind::Registered));
        if flags != 0 || found.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        device.set(pointer)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, pointer: usize) {
        current()?;
        let found = memory::find(pointer).filter(|found| found.kind == Kind::Pinned).ok_or(Code::INVALID_VALUE)?;
        flags.set(found.flags)
    }

    fn cuMemAllocManaged(pointer: Out<usize>, bytes: usize, flags: u32) {
        pointer.check()?;
        let context = current()?;
        if !matches!(flags, 1 | 2) || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        pointer.set(memory::allocate_host(Kind::Managed, bytes, context.owner(flags))?.base)
    }

    fn cuMemPrefetchAsync = cuMemPrefetchAsync_ptsz(pointer: usize, bytes: usize, _device: i32, stream: usize) {
        stream::get(stream)?;
        let managed = memory::find(pointer).filter(|found| found.kind == Kind::Managed);
        managed.filter(|found| pointer + bytes <= found.end()).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuMemAdvise(pointer: usize, bytes: usize, _advice: i32, _device: i32) {
        let managed = memory::find(pointer).filter(|found| found.kind == Kind::Managed);
        managed.filter(|found| pointer + bytes <= found.end()).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuMemAllocAsync = cuMemAllocAsync_ptsz(pointer: Out<usize>, bytes: usize, stream: usize) {
        allocate_in_stream(pointer, bytes, stream)
    }

    fn cuMemAllocFromPoolAsync = cuMemAllocFromPoolAsync_ptsz(
        pointer: Out<usize>, bytes: usize, pool: usize, stream: usize
    ) {
        POOLS.get(pool)?;
        allocate_in_stream(pointer, bytes, stream)
    }

    fn cuMemFreeAsync = cuMemFreeAsync_ptsz(pointer: usize, stream: usize) {
        let stream = stream::get(stream)?;
        let freeable = |kind| matches!(kind, Kind::Device | Kind::Pool);
        memory::find(pointer).filter(|found| found.base == pointer && freeable(found.kind)).ok_or(Code::INVALID_VALUE)?;
        stream.enqueue(move || drop(memory::release(pointer, freeable)))?;
        Ok(())
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) {
        pool.set(default_pool(device)?)
    }

    fn cuDeviceGetMemPool(pool: Out<usize>, device: i32) {
        pool.set(default_pool(device)?)
    }

    fn cuDeviceSetMemPool(device: i32, pool: usize) {
        let pool = POOLS.get(pool)?;
        if pool.device == checked(device)? { Ok(()) } else { Err(Code::INVALID_DEVICE) }
    }

    fn cuMemPoolCreate(pool: Out<usize>, properties: In<[i32; 4]>) {
        // Type, handle types, type of the location, its number.
        let [_, _, location, device] = properties.get()?;
        if location != 1 {
            return Err(Code::INVALID_VALUE);
        }
        pool.set(POOLS.insert(Arc::new(Pool { device: checked(device)? })))
    }

    fn cuMemPoolDestroy(pool: usize) {
        POOLS.remove(pool).map(drop)
    }

    fn cuMemPoolTrimTo(pool: usize, _bytes: usize) {
        POOLS.get(pool).map(drop)
    }

    fn cuMemPoolSetAttribute(pool: usize, _attribute: i32, _value: Out<u64>) {
        POOLS.get(pool).map(drop)
    }

    fn cuMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u64>) {
        let (free, total) = memory::free_and_total(POOLS.get(pool)?.device);
        match attribute {
            1..=3 => value.cast::<i32>().set(1),
            4 => value.set(settings::get().memory_bytes as u64),
            5..=8 => value.set((total - free) as u64),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(pool: usize, _access: In<u8>, _count: usize) {
        POOLS.get(pool).map(drop)
    }
}
