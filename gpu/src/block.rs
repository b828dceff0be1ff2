//! Memory that the drivers gave: pinned host memory, which devices copy from and to at full speed, and device memory.
//! Both are slow to get, so blocks are kept and used again.

use hetccl_core::{Address, MemoryType, Region};

use crate::gpus::Lane;

/// A block of memory. Give it back with [`Gpus::put`](crate::Gpus::put).
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) lane: Lane,
    pub(crate) memory: MemoryType,
    pub(crate) address: usize,
    pub(crate) len_bytes: usize,
}

impl Block {
    /// The whole block.
    pub fn whole(&self) -> Region {
        let address = Address(self.address);
        Region { address, len_bytes: self.len_bytes, memory: self.memory }
    }

    /// The first `len_bytes` of the block.
    ///
    /// # Panics
    /// In debug builds, when the block is shorter.
    pub fn region(&self, len_bytes: usize) -> Region {
        self.whole().slice(0, len_bytes)
    }
}
