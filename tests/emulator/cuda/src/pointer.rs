//! What a pointer is.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hetccl_emulated_device::abi::{In, Out};
use hetccl_emulated_device::memory::{self, Allocation, Kind};
use hetccl_emulated_device::{Code, entries, mapping};

use crate::context::current;

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const DEVICE_ORDINAL_OF_NO_DEVICE: i32 = -2;

/// By the numbers of `CUpointer_attribute`. `None`: no memory of the driver's, for which each attribute is 0.
fn answer(
    data: Out<c_void>,
    attribute: i32,
    pointer: usize,
    found: Option<&Arc<Allocation>>,
) -> Result<(), Code> {
    let kind = found.map(|found| found.kind);
    let on_device = kind.is_some_and(Kind::on_device);
    let legacy_ipc = matches!(kind, Some(Kind::Device | Kind::Opened { .. }));
    let if_found = |value: usize| if found.is_some() { value } else { 0 };
    match attribute {
        // Memory that no context owns.
        1 if matches!(kind, Some(Kind::Pool | Kind::Mapped)) => data.cast().set(0_usize),
        1 => data.cast().set(found.map_or(0, |found| found.context)),
        2 => data.cast().set(match kind {
            None => 0,
            Some(Kind::Pinned | Kind::Registered) => HOST,
            Some(_) => DEVICE,
        }),
        3 => data.cast().set(if_found(pointer)),
        4 => data.cast().set(if on_device { 0 } else { if_found(pointer) }),
        6 => data.cast().set(SYNC_MEMOPS.load(Ordering::Relaxed)),
        7 => data.cast().set(found.map_or(0, |found| found.number)),
        8 => data.cast().set(u32::from(kind == Some(Kind::Managed))),
        9 => {
            data.cast().set(found.map_or(DEVICE_ORDINAL_OF_NO_DEVICE, |found| found.device as i32))
        }
        10 => data.cast().set(legacy_ipc),
        11 => data.cast().set(found.map_or(0, |found| found.base)),
        12 => data.cast().set(found.map_or(0, |found| found.bytes)),
        13 => data.cast().set(found.is_some()),
        14 => data.cast().set(u64::from(kind == Some(Kind::Mapped))),
        15 => data.cast().set(false),
        16 => data.cast().set(if found.is_some() { 3_u32 } else { 0 }),
        17 => data.cast().set(0_usize),
        18 => data.cast().set(found.map_or(0, |found| found.bytes)),
        19 => data.cast().set(found.map_or(0, |found| found.base)),
        20 => data.cast().set(found.map_or(0, |found| found.number)),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The emulator's copies are ordered in any case; kept for queries.
static SYNC_MEMOPS: AtomicBool = AtomicBool::new(false);

entries! {
    fn cuPointerGetAttribute(data: Out<c_void>, attribute: i32, pointer: usize) {
        current()?;
        let found = memory::find(pointer);
        if data.is_null() || found.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        answer(data, attribute, pointer, found.as_ref())
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<i32>, data: In<Out<c_void>>, pointer: usize) {
        current()?;
        let found = memory::find(pointer);
        for index in 0..count as usize {
            answer(data.at(index)?, attributes.at(index)?, pointer, found.as_ref())?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: In<u32>, attribute: i32, pointer: usize) {
        let found = memory::find(pointer).filter(|found| found.kind.on_device());
        if attribute != 6 || found.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        SYNC_MEMOPS.store(value.get()? != 0, Ordering::Relaxed);
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<[i32; 2]>, pointer: usize) {
        crate::device::checked(location.get()?[1])?;
        flags.set(if mapping::access(pointer)? { 3 } else { 0 })
    }
}
