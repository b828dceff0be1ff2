//! Host memory that devices copy from and to at full speed, kept and used again.

use hetccl_core::{Address, MemoryType, Region};

use crate::gpus::Lane;

/// Blocks come in powers of two from here on.
const SMALLEST_BYTES: usize = 4096;

/// A block of pinned host memory. Give it back with [`Gpus::put_pinned`](crate::Gpus::put_pinned).
#[derive(Debug, PartialEq, Eq)]
pub struct Pinned {
    pub(crate) lane: Lane,
    pub(crate) address: usize,
    len_bytes: usize,
}

impl Pinned {
    pub(crate) fn new(lane: Lane, address: usize, len_bytes: usize) -> Pinned {
        Pinned { lane, address, len_bytes }
    }

    /// The first `len_bytes` of the block.
    ///
    /// # Panics
    /// In debug builds, when the block is shorter.
    pub fn region(&self, len_bytes: usize) -> Region {
        let whole = Region {
            address: Address(self.address),
            len_bytes: self.len_bytes,
            memory: MemoryType::Host,
        };
        whole.slice(0, len_bytes)
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
    pub(crate) fn put(&mut self, block: &Pinned, limit_bytes: usize) -> bool {
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
        let block = Pinned::new(Lane(0), 0x1000, size);
        assert!(pool.put(&block, 8192));
        assert!(!pool.put(&Pinned::new(Lane(0), 0x9000, size), 8192), "beyond the bound");
        assert_eq!(pool.take(size), Some(0x1000));
        assert_eq!(pool.drain().count(), 0);
    }
}
