//! Temporary host memory for running collectives, kept and used again.
//!
//! Blocks come in sizes of powers of two. What is kept unused is bounded; a block beyond the bound goes back to the
//! system. Memory is not zeroed.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use hetccl_core::{Address, MemoryType, Pool, Region};

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
        // SAFETY: the layout's size is at least that of the pool's smallest, so not zero.
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

/// Blocks that are not in use.
#[derive(Debug)]
pub(crate) struct ScratchPool {
    free: Pool<Block>,
    limit_bytes: usize,
}

impl ScratchPool {
    /// A pool that keeps at most `limit_bytes` of unused memory.
    pub(crate) fn new(limit_bytes: usize) -> ScratchPool {
        ScratchPool { free: Pool::default(), limit_bytes }
    }

    /// A block of at least `len_bytes`; `None` when there is no memory.
    pub(crate) fn take(&mut self, len_bytes: usize) -> Option<Block> {
        let size = Pool::<Block>::size_for(len_bytes)?;
        self.free.take(size).or_else(|| Block::new(size))
    }

    /// Takes a block back; one beyond the bound goes to the system.
    pub(crate) fn put(&mut self, block: Block) {
        let size = block.layout.size();
        drop(self.free.put(block, size, self.limit_bytes));
    }
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
        assert_eq!(pool.free.kept_bytes(), 0, "a block beyond the bound is not kept");
    }

    #[test]
    fn an_impossible_size_is_none() {
        assert!(ScratchPool::new(0).take(usize::MAX).is_none());
    }
}
