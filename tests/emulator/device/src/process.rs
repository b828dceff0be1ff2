//! Memory handles that travel between processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::file::{SharedFile, next_number};
use crate::memory::{self, Allocation, Kind, Owner};
use crate::{Code, vendor};

/// Size of a handle in CUDA, HIP and Level Zero.
pub const HANDLE_BYTES: usize = 64;

const MAGIC: u32 = 0x6865_7463;

/// What other processes find memory or an event by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The process that it belongs to.
    pub pid: u32,
    /// Its number there.
    pub number: u64,
    /// Size of the memory, 0 for an event.
    pub bytes: usize,
    /// The device there.
    pub device: usize,
}

impl Handle {
    /// A handle of this process.
    pub fn new(number: u64, bytes: usize, device: usize) -> Handle {
        Handle { pid: std::process::id(), number, bytes, device }
    }

    /// As the program passes it around.
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut encoded = [0; HANDLE_BYTES];
        encoded[0..4].copy_from_slice(&(MAGIC + vendor() as u32).to_le_bytes());
        encoded[4..8].copy_from_slice(&self.pid.to_le_bytes());
        encoded[8..16].copy_from_slice(&self.number.to_le_bytes());
        encoded[16..24].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        encoded[24..32].copy_from_slice(&(self.device as u64).to_le_bytes());
        encoded
    }

    /// The opposite of [`Handle::encode`]. Refuses handles of other vendors, and of this process: no driver opens those.
    pub fn decode(encoded: &[u8; HANDLE_BYTES]) -> Result<Handle, Code> {
        let word = |at: usize| u64::from_le_bytes(encoded[at..at + 8].try_into().expect("8 bytes"));
        let (magic, pid) = (word(0) as u32, (word(0) >> 32) as u32);
        if magic != MAGIC + vendor() as u32 {
            return Err(Code::INVALID_VALUE);
        }
        if pid == std::process::id() {
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(Handle { pid, number: word(8), bytes: word(16) as usize, device: word(24) as usize })
    }
}

/// Opens the memory. `share`: a handle that is open already gives the same address once more, as CUDA has it.
pub fn open(handle: Handle, share: bool, owner: Owner) -> Result<Arc<Allocation>, Code> {
    let kind = Kind::Opened { pid: handle.pid, number: handle.number };
    if share
        && let Some(open) =
            memory::all(|found| found.kind == kind && found.context == owner.context).pop()
    {
        open.opened.fetch_add(1, Ordering::Relaxed);
        return Ok(open);
    }
    let file = SharedFile::open(handle.pid, handle.number)?;
    if handle.bytes == 0 || file.bytes() < handle.bytes {
        return Err(Code::INVALID_VALUE);
    }
    memory::insert_view(kind, next_number(), Arc::new(file), 0, handle.bytes, None, owner)
}

/// Undoes one [`open`].
pub fn close(base: usize) -> Result<(), Code> {
    let opened = |kind| matches!(kind, Kind::Opened { .. });
    let found = memory::find(base)
        .filter(|found| found.base == base && opened(found.kind))
        .ok_or(Code::INVALID_VALUE)?;
    if found.opened.fetch_sub(1, Ordering::Relaxed) == 1 {
        memory::release(base, opened)?;
    }
    Ok(())
}
