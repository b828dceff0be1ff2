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
        // SAFETY: inside the block, aligned, and never freed; devices write it as one word.
        unsafe { word(self.address + offset_bytes) }
    }

    /// For the driver: the address of a word of the block.
    pub(crate) fn address_of(word: &AtomicU32) -> usize {
        word.as_ptr().expose_provenance()
    }
}

/// The words of a call in a graph: streams write `ready`, and take `done` back once it is there, so that the graph can run
/// again.
#[derive(Debug)]
pub(crate) struct Pair {
    vendor: Vendor,
    address: usize,
}

const PAIR_BYTES: usize = 8;
/// Pinned memory is taken in blocks of this length, for good.
const PAIRS_BYTES: usize = 4096;

static UNUSED_PAIRS: Mutex<Vec<(Vendor, usize)>> = Mutex::new(Vec::new());

impl Pair {
    /// Two words, both 0.
    ///
    /// # Errors
    /// Of the driver, when there is no pinned memory.
    pub(crate) fn new(driver: &dyn Driver, context: Context) -> Result<Pair, Error> {
        let vendor = driver.vendor();
        let mut unused = UNUSED_PAIRS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let address = match unused.iter().position(|&(of, _)| of == vendor) {
            Some(index) => unused.swap_remove(index).1,
            None => {
                let block = driver.allocate_pinned(context, PAIRS_BYTES)?;
                let further = (block + PAIR_BYTES..block + PAIRS_BYTES).step_by(PAIR_BYTES);
                unused.extend(further.map(|address| (vendor, address)));
                block
            }
        };
        let pair = Pair { vendor, address };
        pair.ready().store(0, Ordering::Release);
        pair.done().store(0, Ordering::Release);
        Ok(pair)
    }

    /// The word that streams write.
    pub(crate) fn ready(&self) -> &AtomicU32 {
        // SAFETY: pinned memory that is never freed, aligned; devices write it as one word.
        unsafe { word(self.ready_address()) }
    }

    fn done(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { word(self.done_address()) }
    }

    /// Whether a stream waits here; asking takes its word away.
    pub(crate) fn take_ready(&self) -> bool {
        let is_ready = self.ready().load(Ordering::Acquire) == 1;
        if is_ready {
            self.ready().store(0, Ordering::Release);
        }
        is_ready
    }

    /// Lets the stream go on.
    pub(crate) fn let_go(&self) {
        self.done().store(1, Ordering::Release);
    }

    /// For drivers.
    pub(crate) fn ready_address(&self) -> usize {
        self.address
    }

    /// For drivers.
    pub(crate) fn done_address(&self) -> usize {
        self.address + PAIR_BYTES / 2
    }

    /// No stream will use it any more.
    pub(crate) fn give_back(self) {
        let mut unused = UNUSED_PAIRS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        unused.push((self.vendor, self.address));
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Pair {
        let words: &'static [AtomicU32; 2] = Box::leak(Box::new([0, 0].map(AtomicU32::new)));
        Pair { vendor: Vendor::Cuda, address: words[0].as_ptr().expose_provenance() }
    }
}

/// The word at an address.
///
/// # Safety
/// Four aligned bytes for as long as the program runs.
unsafe fn word(address: usize) -> &'static AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address)) }
}

impl Drop for Words {
    fn drop(&mut self) {
        let last = self.done().load(Ordering::Acquire);
        let mut unused = UNUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        unused.push((self.vendor, self.address, last));
    }
}
