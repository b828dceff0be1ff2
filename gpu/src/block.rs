//! Memory that the drivers gave: pinned host memory, which devices copy from and to at full speed, and device memory.
//! Both are slow to get, so blocks are kept and used again.

use hetccl_core::{Address, MemoryType, Region};

use crate::gpus::Lane;

/// Blocks come in powers of two from here on.
const SMALLEST_BYTES: usize = 4096;

/// A block of memory. Give it back with [`Gpus::put`](crate::Gpus::put).
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) lane: Lane,
    pub(crate) memory: MemoryType,
    pub(crate) address: usize,
    len_bytes: usize,
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

/// Blocks that are not in use, by size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// `free[i]` holds the addresses of blocks of `SMALLEST_BYTES << i`.
    free: Vec<Vec<usize>>,
    kept_bytes: usize,
}

impl Pool {
    /// A block of `size_bytes`.
    pub(crate) fn block(
        lane: Lane,
        memory: MemoryType,
        address: usize,
        size_bytes: usize,
    ) -> Block {
        Block { lane, memory, address, len_bytes: size_bytes }
    }

    /// The size of the block that serves `len_bytes`.
    pub(crate) fn size_for(len_bytes: usize) -> usize {
        len_bytes.max(SMALLEST_BYTES).next_power_of_two()
    }

    /// A kept block of that size.
    pub(crate) fn take(&mut self, size_bytes: usize) -> Option<usize> {
        let address = self.free.get_mut(class_of(size_bytes))?.pop()?;
        self.kept_bytes -= size_bytes;
        Some(address)
    }

    /// Keeps a block, if that leaves at most `limit_bytes`; whether it did.
    pub(crate) fn put(&mut self, block: &Block, limit_bytes: usize) -> bool {
        if self.kept_bytes + block.len_bytes > limit_bytes {
            return false;
        }
        let class = class_of(block.len_bytes);
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(block.address);
        self.kept_bytes += block.len_bytes;
        true
    }

    /// Everything kept.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = usize> {
        self.kept_bytes = 0;
        std::mem::take(&mut self.free).into_iter().flatten()
    }
}

fn class_of(size_bytes: usize) -> usize {
    (size_bytes / SMALLEST_BYTES).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_within_the_bound() {
        let mut pool = Pool::default();
        let size = Pool::size_for(5000);
        assert_eq!(size, 8192);
        assert_eq!(pool.take(size), None);
        let block = Pool::block(Lane(0), MemoryType::Host, 0x1000, size);
        assert!(pool.put(&block, 8192));
        let other = Pool::block(Lane(0), MemoryType::Host, 0x9000, size);
        assert!(!pool.put(&other, 8192), "beyond the bound");
        assert_eq!(pool.take(size), Some(0x1000));
        assert_eq!(pool.drain().count(), 0);
    }
}
