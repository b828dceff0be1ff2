//! Events that are set and reset, in pools that several processes can share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Code;
use crate::file::{SharedFile, next_number};
use crate::process::Handle;

const SIGNAL_BYTES: usize = 4;

/// A number of signals.
#[derive(Debug)]
pub struct Pool {
    number: u64,
    count: usize,
    address: usize,
    file: SharedFile,
}

impl Pool {
    /// A pool of `count` signals, none of them set.
    pub fn new(count: usize) -> Result<Arc<Pool>, Code> {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let number = next_number();
        let file = SharedFile::create(number, count * SIGNAL_BYTES)?;
        let address = file.map(0, count * SIGNAL_BYTES)?;
        Ok(Arc::new(Pool { number, count, address, file }))
    }

    /// Another process's pool.
    pub fn open(handle: Handle) -> Result<Arc<Pool>, Code> {
        let file = SharedFile::open(handle.pid, handle.number)?;
        if handle.bytes == 0 || handle.bytes != file.bytes() {
            return Err(Code::INVALID_VALUE);
        }
        let address = file.map(0, handle.bytes)?;
        Ok(Arc::new(Pool {
            number: next_number(),
            count: handle.bytes / SIGNAL_BYTES,
            address,
            file,
        }))
    }

    /// A handle for other processes.
    pub fn handle(&self) -> Handle {
        Handle::new(self.number, self.count * SIGNAL_BYTES, 0)
    }

    /// The signal with this number.
    pub fn signal(self: &Arc<Pool>, index: usize) -> Result<Signal, Code> {
        if index < self.count {
            Ok(Signal { pool: self.clone(), index })
        } else {
            Err(Code::INVALID_VALUE)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.file.unlink();
        // SAFETY: mapped for this pool, which its signals keep.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.count * SIGNAL_BYTES) };
    }
}

/// One signal of a pool.
#[derive(Clone, Debug)]
pub struct Signal {
    pool: Arc<Pool>,
    index: usize,
}

impl Signal {
    /// Sets it, or resets it.
    pub fn set(&self, value: bool) {
        self.value().store(value.into(), Ordering::Release);
    }

    /// Is it set?
    pub fn is_set(&self) -> bool {
        self.value().load(Ordering::Acquire) != 0
    }

    /// Waits until it is set, not longer than `limit`. Whether it is.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let set = self.is_set();
            if set || start.elapsed() >= limit {
                return set;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn value(&self) -> &AtomicU32 {
        // SAFETY: within the pool's mapping, which lives as long as the pool; every process uses it as an atomic.
        unsafe { AtomicU32::from_ptr((self.pool.address + self.index * SIGNAL_BYTES) as *mut u32) }
    }
}
