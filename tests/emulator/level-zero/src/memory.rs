//! Memory.

use hetccl_emulated_device::abi::{In, Out};
use hetccl_emulated_device::memory::{self, Allocation, Kind, Owner};
use hetccl_emulated_device::process::{self, HANDLE_BYTES, Handle};
use hetccl_emulated_device::{Code, entries, settings};
use std::sync::Arc;

use crate::device::{check_context, checked, domain, handle_of};

/// `ze_ipc_mem_handle_t`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Opaque([u8; HANDLE_BYTES]);

/// `ze_memory_allocation_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationProperties {
    structure: u32,
    next: usize,
    kind: u32,
    id: u64,
    page_bytes: u64,
}

/// `ze_memory_type_t`.
fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Pinned | Kind::Registered => 1,
        Kind::Managed => 3,
        _ => 2,
    }
}

fn owner(context: usize, device: usize) -> Owner {
    Owner { device, context, flags: 0 }
}

fn find(context: usize, pointer: usize) -> Result<Arc<Allocation>, Code> {
    check_context(context)?;
    memory::find(pointer).ok_or(Code::INVALID_VALUE)
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<AllocationProperties>() == 40);
};

entries! {
    fn zeMemAllocDevice(
        context: usize, _description: In<u8>, bytes: usize, _alignment: usize, device: usize, pointer: Out<usize>
    ) {
        check_context(context)?;
        pointer.check()?;
        pointer.set(memory::allocate(Kind::Device, bytes, owner(context, checked(device)?))?.base)
    }

    fn zeMemAllocHost(context: usize, _description: In<u8>, bytes: usize, _alignment: usize, pointer: Out<usize>) {
        check_context(context)?;
        pointer.check()?;
        pointer.set(memory::allocate_host(Kind::Pinned, bytes, owner(context, 0))?.base)
    }

    fn zeMemAllocShared(
        context: usize, _device_description: In<u8>, _host_description: In<u8>, bytes: usize, _alignment: usize,
        device: usize, pointer: Out<usize>
    ) {
        check_context(context)?;
        pointer.check()?;
        let device = if device == 0 { 0 } else { checked(device)? };
        pointer.set(memory::allocate_host(Kind::Managed, bytes, owner(context, device))?.base)
    }

    fn zeMemFree(context: usize, pointer: usize) {
        let found = find(context, pointer)?;
        let owned = |kind| !matches!(kind, Kind::Opened { .. });
        memory::release(pointer, owned)?;
        drop(found);
        Ok(())
    }

    fn zeMemGetAllocProperties(
        context: usize, pointer: usize, properties: Out<AllocationProperties>, device: Out<usize>
    ) {
        check_context(context)?;
        let before = properties.get()?;
        let found = find(context, pointer).ok();
        let kind = found.as_ref().map_or(0, |found| type_of(found.kind));
        let id = found.as_ref().map_or(0, |found| found.number);
        properties.set(AllocationProperties { kind, id, page_bytes: 4096, ..before })?;
        let with_device = found.filter(|found| found.kind != Kind::Pinned);
        device.set_if_wanted(with_device.map_or(0, |found| handle_of(found.device)));
        Ok(())
    }

    fn zeMemGetAddressRange(context: usize, pointer: usize, base: Out<usize>, bytes: Out<usize>) {
        let found = find(context, pointer)?;
        base.set_if_wanted(found.base);
        bytes.set_if_wanted(found.bytes);
        Ok(())
    }

    fn zeMemGetIpcHandle(context: usize, pointer: usize, handle: Out<Opaque>) {
        handle.set(Opaque(find(context, pointer)?.handle()?.encode()))
    }

    fn zeMemPutIpcHandle(context: usize, _handle: Opaque) {
        check_context(context)
    }

    fn zeMemOpenIpcHandle(context: usize, device: usize, handle: Opaque, _flags: u32, pointer: Out<usize>) {
        check_context(context)?;
        pointer.check()?;
        let owner = owner(context, checked(device)?);
        pointer.set(process::open(Handle::decode(&handle.0)?, false, owner)?.base)
    }

    fn zeMemCloseIpcHandle(context: usize, pointer: usize) {
        check_context(context)?;
        process::close(pointer)
    }

    fn zeContextMakeMemoryResident(context: usize, _device: usize, _pointer: usize, _bytes: usize) {
        check_context(context)
    }

    fn zeContextSystemBarrier(context: usize, _device: usize) {
        check_context(context)?;
        (0..settings::get().devices).for_each(|device| domain(device).synchronize());
        Ok(())
    }
}
