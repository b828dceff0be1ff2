//! Temporary host memory for running collectives, kept and used again.
//!
//! Blocks come in sizes of powers of two. What is kept unused is bounded; a block beyond the bound goes back to the
//! system. Memory is not zeroed.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use hetccl_core::{Address, MemoryType, Region};

const SMALLEST_BYTES: usize = 4096;
const ALIGN_BYTES: usize = 4096;

/// A block of scratch memory; freed when dropped, or kept by [`ScratchPool::put`].
#[derive(Debug)]
pub(crate) struct Block {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is plain memory that only its owner reaches.
unsafe impl Send for Block {}

impl Block {
    /// Memory of at least `len_bytes`; `None` when the system has none.
    fn new(len_bytes: usize) -> Option<Block> {
        let layout = Layout::from_size_align(len_bytes, ALIGN_BYTES).ok()?;
        // SAFETY: the layout's size is at least SMALLEST_BYTES, so not zero.
        let memory = NonNull::new(unsafe { alloc(layout) })?;
        Some(Block { memory, layout })
    }

    /// The whole block.
    pub(crate) fn region(&self) -> Region {
        Region {
            address: Address(self.memory.as_ptr().expose_provenance()),
            len_bytes: self.layout.size(),
            memory: MemoryType::Host,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout and freed only here.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Blocks that are not in use, by size.
#[derive(Debug)]
pub(crate) struct ScratchPool {
    /// `free[i]` holds blocks of `SMALLEST_BYTES << i`.
    free: Vec<Vec<Block>>,
    kept_bytes: usize,
    limit_bytes: usize,
}

impl ScratchPool {
    /// A pool that keeps at most `limit_bytes` of unused memory.
    pub(crate) fn new(limit_bytes: usize) -> ScratchPool {
        ScratchPool { free: Vec::new(), kept_bytes: 0, limit_bytes }
    }

    /// A block of at least `len_bytes`; `None` when there is no memory.
    pub(crate) fn take(&mut self, len_bytes: usize) -> Option<Block> {
        let size = len_bytes.max(SMALLEST_BYTES).checked_next_power_of_two()?;
        let class = class_of(size);
        if let Some(block) = self.free.get_mut(class).and_then(Vec::pop) {
            self.kept_bytes -= size;
            return Some(block);
        }
        Block::new(size)
    }

    /// Takes a block back.
    pub(crate) fn put(&mut self, block: Block) {
        let size = block.layout.size();
        if self.kept_bytes + size > self.limit_bytes {
            return;
        }
        let class = class_of(size);
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.kept_bytes += size;
        self.free[class].push(block);
    }
}

fn class_of(size_bytes: usize) -> usize {
    (size_bytes / SMALLEST_BYTES).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_within_the_bound() {
        let mut pool = ScratchPool::new(1 << 20);
        let block = pool.take(5000).unwrap();
        let address = block.region().address;
        assert_eq!(block.region().len_bytes, 8192);
        pool.put(block);
        assert_eq!(pool.take(8000).unwrap().region().address, address);
        let large = pool.take(2 << 20).unwrap();
        pool.put(large);
        assert_eq!(pool.kept_bytes, 0, "a block beyond the bound is not kept");
    }

    #[test]
    fn an_impossible_size_is_none() {
        assert!(ScratchPool::new(0).take(usize::MAX).is_none());
    }
}
