//! Virtual memory management: physical memory, reserved addresses, and mappings that bring them together.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::file::{SharedFile, next_number};
use crate::memory::{self, Kind, Owner};
use crate::{Code, window};

/// Sizes, offsets and addresses are multiples of this.
pub const GRANULARITY_BYTES: usize = 2 << 20;

/// Memory without an address. Counts as used until the last reference, handle or mapping, is gone.
#[derive(Debug)]
pub struct Physical {
    /// The device's number.
    pub device: usize,
    /// Its size.
    pub bytes: usize,
    file: Arc<SharedFile>,
    counted: bool,
}

impl Physical {
    /// Allocates.
    pub fn create(device: usize, bytes: usize) -> Result<Physical, Code> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY_BYTES) {
            return Err(Code::INVALID_VALUE);
        }
        memory::reserve_bytes(device, bytes)?;
        match SharedFile::create(next_number(), bytes) {
            Ok(file) => Ok(Physical { device, bytes, file: Arc::new(file), counted: true }),
            Err(code) => {
                memory::return_bytes(device, bytes);
                Err(code)
            }
        }
    }

    /// A descriptor that another process can import.
    pub fn export(&self) -> Result<i32, Code> {
        self.file.duplicate()
    }

    /// Memory that another process exported.
    pub fn import(device: usize, descriptor: i32) -> Result<Physical, Code> {
        let file = SharedFile::from_descriptor(descriptor)?;
        let bytes = file.bytes();
        if bytes == 0 || bytes % GRANULARITY_BYTES != 0 {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Physical { device, bytes, file: Arc::new(file), counted: false })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.counted {
            memory::return_bytes(self.device, self.bytes);
        }
    }
}

/// Reserved ranges, and the physical memory of each mapping.
static RESERVED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
static MAPPED: Mutex<BTreeMap<usize, Arc<Physical>>> = Mutex::new(BTreeMap::new());

/// Reserves addresses.
pub fn reserve(bytes: usize, alignment: usize) -> Result<usize, Code> {
    if bytes == 0
        || !bytes.is_multiple_of(GRANULARITY_BYTES)
        || !(alignment == 0 || alignment.is_power_of_two())
    {
        return Err(Code::INVALID_VALUE);
    }
    let base = memory::take_addresses(bytes, alignment.max(GRANULARITY_BYTES))?;
    RESERVED.lock().expect("no panic inside").insert(base, bytes);
    Ok(base)
}

/// Gives reserved addresses back.
pub fn free(base: usize, bytes: usize) -> Result<(), Code> {
    let mut reserved = RESERVED.lock().expect("no panic inside");
    let in_use = MAPPED.lock().expect("no panic inside").range(base..base + bytes).next().is_some();
    if reserved.get(&base) != Some(&bytes) || in_use {
        return Err(Code::INVALID_VALUE);
    }
    reserved.remove(&base);
    memory::give_addresses_back(base);
    Ok(())
}

/// Maps a part of `physical` at reserved addresses.
pub fn map(
    base: usize,
    bytes: usize,
    offset: usize,
    physical: Arc<Physical>,
    context: usize,
    flags: u32,
) -> Result<(), Code> {
    let whole = |value: usize| value.is_multiple_of(GRANULARITY_BYTES);
    let reserved = RESERVED.lock().expect("no panic inside");
    let inside = reserved
        .range(..=base)
        .next_back()
        .is_some_and(|(start, size)| base + bytes <= start + size);
    let mut mapped = MAPPED.lock().expect("no panic inside");
    let free = mapped
        .range(..base + bytes)
        .next_back()
        .is_none_or(|(&last, _)| memory::find(last).is_none_or(|last| last.end() <= base));
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes);
    if !(bytes > 0 && whole(base) && whole(bytes) && whole(offset) && inside && free && fits) {
        return Err(Code::INVALID_VALUE);
    }
    let owner = Owner { device: physical.device, context, flags };
    memory::insert_view(
        Kind::Mapped,
        next_number(),
        physical.file.clone(),
        offset,
        bytes,
        Some(base),
        owner,
    )?;
    mapped.insert(base, physical);
    Ok(())
}

/// Undoes every [`map`] in the range.
pub fn unmap(base: usize, bytes: usize) -> Result<(), Code> {
    let mut mapped = MAPPED.lock().expect("no panic inside");
    let bases: Vec<usize> = mapped.range(base..base + bytes).map(|(&base, _)| base).collect();
    let whole =
        bases.iter().filter_map(|&base| memory::find(base)).map(|found| found.bytes).sum::<usize>()
            == bytes;
    if bases.is_empty() || !whole {
        return Err(Code::INVALID_VALUE);
    }
    for base in bases {
        memory::release(base, |kind| kind == Kind::Mapped)?;
        mapped.remove(&base);
    }
    Ok(())
}

/// Lets the device reach the range, or not any more.
pub fn set_access(base: usize, bytes: usize, access: bool) -> Result<(), Code> {
    let inside = |found: &memory::Allocation| {
        found.kind == Kind::Mapped && found.base >= base && found.end() <= base + bytes
    };
    let found = memory::all(inside);
    if found.iter().map(|found| found.bytes).sum::<usize>() != bytes {
        return Err(Code::INVALID_VALUE);
    }
    for found in found {
        found.accessible.store(access, Ordering::Relaxed);
    }
    Ok(())
}

/// May the device reach `address`?
pub fn access(address: usize) -> Result<bool, Code> {
    let found =
        memory::find(address).filter(|found| found.kind.on_device()).ok_or(Code::INVALID_VALUE)?;
    Ok(found.accessible.load(Ordering::Relaxed))
}

/// The physical memory that is mapped at `address`.
pub fn physical_at(address: usize) -> Result<Arc<Physical>, Code> {
    if !window::range().contains(&address) {
        return Err(Code::INVALID_VALUE);
    }
    let base = memory::find(address).ok_or(Code::INVALID_VALUE)?.base;
    MAPPED.lock().expect("no panic inside").get(&base).cloned().ok_or(Code::INVALID_VALUE)
}
