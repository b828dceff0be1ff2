//! Virtual memory management.

use std::sync::Arc;

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::mapping::{self, GRANULARITY_BYTES, Physical};
use hetccl_emulated_device::{Code, entries};

use crate::context::current;
use crate::device::checked;

const PINNED: i32 = 1;
const LOCATION_DEVICE: i32 = 1;
const FILE_DESCRIPTOR: i32 = 1;

static PHYSICAL: Table<Physical> = Table::new(7);

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    kind: i32,
    handle_types: i32,
    location: Location,
    windows: usize,
    flags: [u8; 8],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Location {
    kind: i32,
    number: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location: Location,
    flags: u32,
}

fn device_of(properties: &Properties) -> Result<usize, Code> {
    if properties.kind != PINNED || properties.location.kind != LOCATION_DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    checked(properties.location.number)
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<Properties>() == 32);
    assert!(size_of::<Access>() == 12);
};

entries! {
    fn cuMemGetAllocationGranularity(granularity: Out<usize>, properties: In<Properties>, _option: i32) {
        device_of(&properties.get()?)?;
        granularity.set(GRANULARITY_BYTES)
    }

    fn cuMemCreate(handle: Out<usize>, bytes: usize, properties: In<Properties>, _flags: u64) {
        handle.check()?;
        let device = device_of(&properties.get()?)?;
        handle.set(PHYSICAL.insert(Arc::new(Physical::create(device, bytes)?)))
    }

    fn cuMemRelease(handle: usize) {
        PHYSICAL.remove(handle).map(drop)
    }

    fn cuMemAddressReserve(pointer: Out<usize>, bytes: usize, alignment: usize, _wanted: usize, _flags: u64) {
        pointer.check()?;
        pointer.set(mapping::reserve(bytes, alignment)?)
    }

    fn cuMemAddressFree(pointer: usize, bytes: usize) {
        mapping::free(pointer, bytes)
    }

    fn cuMemMap(pointer: usize, bytes: usize, offset: usize, handle: usize, _flags: u64) {
        let context = current().map_or(0, |context| context.handle);
        mapping::map(pointer, bytes, offset, PHYSICAL.get(handle)?, context, 0)
    }

    fn cuMemUnmap(pointer: usize, bytes: usize) {
        if let Ok(context) = current() {
            context.domain.synchronize();
        }
        mapping::unmap(pointer, bytes)
    }

    fn cuMemSetAccess(pointer: usize, bytes: usize, accesses: In<Access>, count: usize) {
        for index in 0..count {
            let Access { location, flags } = accesses.at(index)?;
            checked(location.number)?;
            mapping::set_access(pointer, bytes, flags & 3 != 0)?;
        }
        Ok(())
    }

    fn cuMemExportToShareableHandle(descriptor: Out<i32>, handle: usize, kind: i32, _flags: u64) {
        if kind != FILE_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        descriptor.set(PHYSICAL.get(handle)?.export()?)
    }

    fn cuMemImportFromShareableHandle(handle: Out<usize>, descriptor: usize, kind: i32) {
        if kind != FILE_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        let device = current().map_or(0, |context| context.device);
        handle.set(PHYSICAL.insert(Arc::new(Physical::import(device, descriptor as i32)?)))
    }

    fn cuMemRetainAllocationHandle(handle: Out<usize>, address: usize) {
        handle.set(PHYSICAL.insert(mapping::physical_at(address)?))
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: usize) {
        let device = PHYSICAL.get(handle)?.device as i32;
        let location = Location { kind: LOCATION_DEVICE, number: device };
        properties.set(Properties { kind: PINNED, handle_types: FILE_DESCRIPTOR, location, ..Properties::default() })
    }
}
