//! Virtual memory management.

use std::sync::Arc;

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::mapping::{self, GRANULARITY_BYTES, Physical};
use hetccl_emulated_device::{Code, entries};

use crate::device::{checked, current, domain};

const PINNED: i32 = 1;
const LOCATION_DEVICE: i32 = 1;
const FILE_DESCRIPTOR: i32 = 1;

static PHYSICAL: Table<Physical> = Table::new(7);

/// `hipMemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    kind: i32,
    handle_types: i32,
    location: Location,
    windows: usize,
    flags: [u8; 8],
}

/// `hipMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Location {
    kind: i32,
    number: i32,
}

/// `hipMemAccessDesc`.
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

entries! {
    fn hipMemGetAccess(flags: Out<u64>, location: In<Location>, pointer: usize) {
        checked(location.get()?.number)?;
        flags.set(if mapping::access(pointer)? { 3 } else { 0 })
    }

    fn hipMemGetAllocationGranularity(granularity: Out<usize>, properties: In<Properties>, _option: i32) {
        device_of(&properties.get()?)?;
        granularity.set(GRANULARITY_BYTES)
    }

    fn hipMemCreate(handle: Out<usize>, bytes: usize, properties: In<Properties>, _flags: u64) {
        handle.check()?;
        let device = device_of(&properties.get()?)?;
        handle.set(PHYSICAL.insert(Arc::new(Physical::create(device, bytes)?)))
    }

    fn hipMemRelease(handle: usize) {
        PHYSICAL.remove(handle).map(drop)
    }

    fn hipMemAddressReserve(pointer: Out<usize>, bytes: usize, alignment: usize, _wanted: usize, _flags: u64) {
        pointer.check()?;
        pointer.set(mapping::reserve(bytes, alignment)?)
    }

    fn hipMemAddressFree(pointer: usize, bytes: usize) {
        mapping::free(pointer, bytes)
    }

    fn hipMemMap(pointer: usize, bytes: usize, offset: usize, handle: usize, _flags: u64) {
                mapping::map(pointer, bytes, offset, PHYSICAL.get(handle)?, 0, 0)
    }

    fn hipMemUnmap(pointer: usize, bytes: usize) {
        domain(current()?).synchronize();
        mapping::unmap(pointer, bytes)
    }

    fn hipMemSetAccess(pointer: usize, bytes: usize, accesses: In<Access>, count: usize) {
        for index in 0..count {
            let Access { location, flags } = accesses.at(index)?;
            checked(location.number)?;
            mapping::set_access(pointer, bytes, flags & 3 != 0)?;
        }
        Ok(())
    }

    fn hipMemExportToShareableHandle(descriptor: Out<i32>, handle: usize, kind: i32, _flags: u64) {
        if kind != FILE_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        descriptor.set(PHYSICAL.get(handle)?.export()?)
    }

    fn hipMemImportFromShareableHandle(handle: Out<usize>, descriptor: usize, kind: i32) {
        if kind != FILE_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        let device = current()?;
        handle.set(PHYSICAL.insert(Arc::new(Physical::import(device, descriptor as i32)?)))
    }

    fn hipMemRetainAllocationHandle(handle: Out<usize>, address: usize) {
        handle.set(PHYSICAL.insert(mapping::physical_at(address)?))
    }

    fn hipMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: usize) {
        let device = PHYSICAL.get(handle)?.device as i32;
        let location = Location { kind: LOCATION_DEVICE, number: device };
        properties.set(Properties { kind: PINNED, handle_types: FILE_DESCRIPTOR, location, ..Properties::default() })
    }
}
