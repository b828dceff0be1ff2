//! Device memory of other processes of this host.
//!
//! An allocation is named by its process and the number that the driver gave it, which is never given twice: memory that
//! was freed, and another allocation at the same address, is another name. Handles are asked for once per allocation and
//! opened once per allocation; what was opened at addresses that a new allocation covers is closed.

use std::collections::HashMap;

use crate::driver::{Context, Driver, IPC_HANDLE_BYTES, IpcHandle, Place};
use crate::vendor::Vendor;

/// Allocations that are kept exported, and others' that are kept open.
const KEPT: usize = 256;

/// A place in device memory, as another process is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Whose device.
    pub vendor: Vendor,
    /// The process.
    pub pid: u32,
    /// Its number of the allocation.
    pub allocation: u64,
    /// The allocation's handle.
    pub handle: IpcHandle,
    /// First byte of the allocation, in its process.
    pub base: u64,
    /// Length of the allocation in bytes.
    pub len_bytes: u64,
    /// The place, in bytes from the allocation's first one.
    pub offset: u64,
}

impl Exported {
    /// Bytes of the wire form.
    pub const WIRE_BYTES: usize = 8 * 5 + IPC_HANDLE_BYTES;

    /// For the wire.
    pub fn to_bytes(&self) -> [u8; Exported::WIRE_BYTES] {
        let mut bytes = [0; Exported::WIRE_BYTES];
        let words = [
            (self.vendor as u64) << 32 | u64::from(self.pid),
            self.allocation,
            self.base,
            self.len_bytes,
            self.offset,
        ];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..].copy_from_slice(&self.handle.0);
        bytes
    }

    /// From the wire; `None` for what no process sends.
    pub fn from_bytes(bytes: &[u8; Exported::WIRE_BYTES]) -> Option<Exported> {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j]));
        Some(Exported {
            vendor: Vendor::from_number(word(0) >> 32)?,
            pid: word(0) as u32,
            allocation: word(1),
            base: word(2),
            len_bytes: word(3),
            offset: word(4),
            handle: IpcHandle(std::array::from_fn(|i| bytes[40 + i])),
        })
    }
}

/// Handles of this process's allocations.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    known: HashMap<(Vendor, u64), Option<Exported>>,
}

impl Exports {
    /// The place's name for others; `None` where the driver refuses.
    pub(crate) fn get(
        &mut self,
        driver: &dyn Driver,
        place: &Place,
        address: usize,
    ) -> Option<Exported> {
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        let vendor = driver.vendor();
        let whole = *self.known.entry((vendor, place.allocation)).or_insert_with(|| {
            let (base, len_bytes) = driver.allocation(place.context, address).ok()?;
            let handle = driver.export(place.context, base).ok()?;
            Some(Exported {
                vendor,
                pid: std::process::id(),
                allocation: place.allocation,
                handle,
                base: base as u64,
                len_bytes: len_bytes as u64,
                offset: 0,
            })
        });
        whole.map(|whole| Exported { offset: address as u64 - whole.base, ..whole })
    }
}

#[derive(Clone, Copy, Debug)]
struct Import {
    context: Context,
    exported: Exported,
    /// First byte here; `None`: it can't be opened.
    here: Option<usize>,
    used: u64,
}

/// Other processes' allocations that are open here.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    open: Vec<Import>,
    clock: u64,
}

impl Imports {
    /// The place's address here; `None` where the driver refuses.
    pub(crate) fn get(
        &mut self,
        driver: &dyn Driver,
        context: Context,
        exported: &Exported,
    ) -> Option<usize> {
        if exported.pid == std::process::id() {
            // Another rank in this process: its memory is where it says.
            return Some((exported.base + exported.offset) as usize);
        }
        self.clock += 1;
        let same = |import: &Import| {
            import.context == context
                && import.exported.vendor == exported.vendor
                && import.exported.pid == exported.pid
                && import.exported.allocation == exported.allocation
        };
        if let Some(import) = self.open.iter_mut().find(|import| same(import)) {
            import.used = self.clock;
            return import.here.map(|base| base + exported.offset as usize);
        }
        self.forget_replaced(driver, exported);
        if self.open.len() >= KEPT {
            self.close_oldest(driver);
        }
        let here = driver.open(context, &exported.handle).ok();
        self.open.push(Import { context, exported: *exported, here, used: self.clock });
        here.map(|base| base + exported.offset as usize)
    }

    /// Closes what a process had where it now has another allocation.
    fn forget_replaced(&mut self, driver: &dyn Driver, new: &Exported) {
        self.open.retain(|import| {
            let old = &import.exported;
            let replaced = old.vendor == new.vendor
                && old.pid == new.pid
                && old.base < new.base + new.len_bytes
                && new.base < old.base + old.len_bytes;
            if let (true, Some(base)) = (replaced, import.here) {
                driver.close(import.context, base);
            }
            !replaced
        });
    }

    fn close_oldest(&mut self, driver: &dyn Driver) {
        let vendor = driver.vendor();
        let mine = self.open.iter().enumerate().filter(|(_, i)| i.exported.vendor == vendor);
        if let Some((oldest, _)) = mine.min_by_key(|(_, import)| import.used) {
            let import = self.open.swap_remove(oldest);
            if let Some(base) = import.here {
                driver.close(import.context, base);
            }
        }
    }
}

/// A number that is the same for all processes that can open each other's handles: those of one running kernel.
pub fn host_id() -> u64 {
    use std::hash::{Hash, Hasher};
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut hasher = std::hash::DefaultHasher::new();
    boot.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_the_wire() {
        let place = Exported {
            vendor: Vendor::Rocm,
            pid: 4_000_000_000,
            allocation: 7,
            handle: IpcHandle([9; IPC_HANDLE_BYTES]),
            base: 1 << 40,
            len_bytes: 1 << 30,
            offset: 12,
        };
        assert_eq!(Exported::from_bytes(&place.to_bytes()), Some(place));
        assert_eq!(Exported::from_bytes(&[0; Exported::WIRE_BYTES]), None);
    }
}
