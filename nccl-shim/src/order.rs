//! Words in pinned memory that streams write and wait for.
//!
//! ```text
//! byte 0      done: tasks finished so far, written here, waited for by streams
//! byte 64 on  ready[i]: written by a stream when it comes to a task that has word i
//! ```
//!
//! The memory is never given back to the driver, because a stream may look at a word after its communicator has gone; it
//! is used again, with numbers that go on from where they were.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use hetccl_runtime::gpu::{Context, Driver, Error, Vendor};

/// Tasks that can be waiting at a time.
pub(crate) const SLOTS: usize = 1008;
const BYTES: usize = 64 + 4 * SLOTS;

static UNUSED: Mutex<Vec<(Vendor, usize, u32)>> = Mutex::new(Vec::new());

/// The words of one communicator.
#[derive(Debug)]
pub(crate) struct Words {
    vendor: Vendor,
    address: usize,
    /// The number of the task before the first one.
    pub(crate) first: u32,
}

impl Words {
    /// Words in pinned memory of the context.
    pub(crate) fn new(driver: &dyn Driver, context: Context) -> Result<Words, Error> {
        let vendor = driver.vendor();
        let mut unused = UNUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(index) = unused.iter().position(|&(of, ..)| of == vendor) {
            let (_, address, first) = unused.swap_remove(index);
            return Ok(Words { vendor, address, first });
        }
        let address = driver.allocate_pinned(context, BYTES)?;
        let words = Words { vendor, address, first: 0 };
        words.done().store(0, Ordering::Release);
        for slot in 0..SLOTS {
            words.ready(slot).store(0, Ordering::Release);
        }
        Ok(words)
    }

    /// The word that streams wait for.
    pub(crate) fn done(&self) -> &AtomicU32 {
        self.word(0)
    }

    /// A word that streams write.
    pub(crate) fn ready(&self, slot: usize) -> &AtomicU32 {
        self.word(64 + 4 * slot)
    }

    fn word(&self, offset_bytes: usize) -> &AtomicU32 {
        let pointer = std::ptr::with_exposed_provenance_mut(self.address + offset_bytes);
        // SAFETY: inside the block, aligned, and never freed; devices write it as one word.
        unsafe { AtomicU32::from_ptr(pointer) }
    }

    /// For the driver: the address of a word of the block.
    pub(crate) fn address_of(word: &AtomicU32) -> usize {
        word.as_ptr().expose_provenance()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let last = self.done().load(Ordering::Acquire);
        let mut unused = UNUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        unused.push((self.vendor, self.address, last));
    }
}
