//! This process's journal: the last calls of each communicator, in an anonymous file that others may read.
//!
//! ```text
//! head      magic, pid, world rank, world size, host name
//! block     one per communicator: who, how far, in what trouble; then the last calls, in turn
//! ```
//!
//! The file is sparse: a block costs memory once its communicator is used.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::call::CallWord;

/// In the name of every journal's file.
pub(super) const NAME: &str = "hetccl-journal";
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"hetcclJ1");

pub(super) const HEAD_BYTES: usize = 4096;
pub(super) const HOST_AT: usize = 64;
pub(super) const HOST_BYTES: usize = 64;
pub(super) const BLOCKS: usize = 1024;
/// Words of a block's head, of an entry, and entries.
pub(super) const BLOCK_HEAD: usize = 16;
pub(super) const ENTRY: usize = 4;
pub(super) const ENTRIES: usize = 32;
pub(super) const BLOCK_BYTES: usize = (BLOCK_HEAD + ENTRY * ENTRIES) * 8;
pub(super) const FILE_BYTES: usize = HEAD_BYTES + BLOCKS * BLOCK_BYTES;

/// Words of a block's head.
pub(super) const CONTEXT: usize = 0;
pub(super) const RANK: usize = 1;
pub(super) const SIZE: usize = 2;
pub(super) const STARTED: usize = 3;
/// The first call that failed, + 1, and whether the communicator is of no more use since.
pub(super) const FAILED: usize = 4;
pub(super) const BROKEN: usize = 5;
/// Since when this rank waits (ms since 1970), and for whom (+ 1).
pub(super) const WAITING_SINCE: usize = 6;
pub(super) const WAITING_FOR: usize = 7;

/// Kinds of call, each counted on its own.
pub const BLOCKING: u8 = 0;
/// Nonblocking and persistent collectives.
pub const NONBLOCKING: u8 = 1;
/// Nonblocking and persistent collectives among neighbours.
pub const NEIGHBOURHOOD: u8 = 2;
pub(super) const KINDS: usize = 3;

/// Words of an entry: number and kind, the call, bytes, how it ended.
pub(super) const NUMBER_BITS: u32 = 60;
pub(super) const RUNNING: u64 = 1;
pub(super) const DONE: u64 = 2;
pub(super) const FAILED_STATE: u64 = 3;

/// The file, mapped. One per process.
#[derive(Debug)]
pub struct Journal {
    base: *mut u64,
    file: File,
    taken: Mutex<Vec<bool>>,
}

// SAFETY: the memory is reached through atomics only.
unsafe impl Send for Journal {}
// SAFETY: as above.
unsafe impl Sync for Journal {}

impl Journal {
    /// A new journal of rank `rank` of `size` on `host`.
    ///
    /// # Errors
    /// No anonymous file or no address space.
    pub fn create(rank: u32, size: u32, host: &str) -> io::Result<Arc<Journal>> {
        let name = CString::new(NAME).unwrap_or_default();
        // SAFETY: the name is a string of ours.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(FILE_BYTES as u64)?;
        // SAFETY: a new shared mapping of a file of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let journal = Journal { base: base.cast(), file, taken: Mutex::new(vec![false; BLOCKS]) };
        let host = host.as_bytes();
        let mut named = [0; HOST_BYTES];
        let len = host.len().min(HOST_BYTES - 1);
        named[..len].copy_from_slice(&host[..len]);
        for (i, word) in named.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(std::array::from_fn(|b| word[b]));
            journal.word(HOST_AT / 8 + i).store(word, Ordering::Relaxed);
        }
        for (at, value) in [(1, u64::from(std::process::id())), (2, rank.into()), (3, size.into())]
        {
            journal.word(at).store(value, Ordering::Relaxed);
        }
        journal.word(0).store(MAGIC, Ordering::Release);
        Ok(Arc::new(journal))
    }

    /// The descriptor by which others find it in `/proc`.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// A communicator's block; `None` when all are taken.
    pub fn track(self: &Arc<Journal>, context: u32, rank: u32, size: u32) -> Option<Track> {
        let index = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let index = taken.iter().position(|taken| !taken)?;
            taken[index] = true;
            index
        };
        let track =
            Track { journal: self.clone(), first: (HEAD_BYTES + index * BLOCK_BYTES) / 8, index };
        for at in RANK..BLOCK_BYTES / 8 {
            if track.word(at).load(Ordering::Relaxed) != 0 {
                track.word(at).store(0, Ordering::Relaxed);
            }
        }
        track.word(RANK).store(rank.into(), Ordering::Relaxed);
        track.word(SIZE).store(size.into(), Ordering::Relaxed);
        track.word(CONTEXT).store(u64::from(context) + 1, Ordering::Release);
        Some(track)
    }

    /// Writes the journal as it is to a descriptor. Safe in a signal handler: one system call a round, no allocation.
    pub fn write_to(&self, descriptor: i32) -> bool {
        let mut at = 0;
        while at < FILE_BYTES {
            // SAFETY: the mapping has FILE_BYTES bytes and lives as long as `self`.
            let wrote = unsafe {
                libc::write(descriptor, self.base.cast::<u8>().add(at).cast(), FILE_BYTES - at)
            };
            if wrote <= 0 {
                return false;
            }
            at += wrote as usize;
        }
        true
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < FILE_BYTES / 8);
        // SAFETY: inside the mapping, aligned, and never reached in another way.
        unsafe { &*self.base.add(index).cast::<AtomicU64>() }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // SAFETY: mapped in `create` with this length; nobody has a reference past the journal's life.
        unsafe { libc::munmap(self.base.cast(), FILE_BYTES) };
    }
}

/// A communicator's block in the journal. Its calls are written by one thread at a time.
#[derive(Debug)]
pub struct Track {
    journal: Arc<Journal>,
    /// The block's first word.
    first: usize,
    index: usize,
}

/// A call that has been written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its place among all calls on the communicator.
    place: u64,
    /// Its number among those of its kind.
    pub number: u64,
    /// The kind of call: kinds are counted on their own.
    pub kind: u8,
    /// The call.
    pub call: CallWord,
    /// Bytes of this rank's part, where they must be equal on all ranks.
    pub bytes: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Well.
    Well,
    /// With an error; the communicator's later calls are in step.
    Failed,
    /// With an error in the middle; nothing more can come of the communicator.
    Broken,
}

impl Track {
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        self.journal.word(self.first + at)
    }

    /// Writes a call down: its `number` among those of `kind` (0 to 15), and its bytes.
    #[inline]
    pub fn begin(&self, kind: u8, number: u64, call: CallWord, bytes: usize) -> Ticket {
        let started = self.word(STARTED);
        let place = started.load(Ordering::Relaxed);
        let entry = BLOCK_HEAD + (place as usize % ENTRIES) * ENTRY;
        let named = (u64::from(kind) << NUMBER_BITS) | (number + 1);
        self.word(entry + 1).store(call.0, Ordering::Relaxed);
        self.word(entry + 2).store(bytes as u64, Ordering::Relaxed);
        self.word(entry + 3).store(RUNNING, Ordering::Relaxed);
        self.word(entry).store(named, Ordering::Release);
        started.store(place + 1, Ordering::Release);
        Ticket { place, number, kind, call, bytes: bytes as u64 }
    }

    /// Writes down how a call ended.
    #[inline]
    pub fn end(&self, ticket: Ticket, ended: Ended) {
        if ended == Ended::Well {
            self.mark(ticket, DONE);
        } else {
            self.note_failure(ticket, ended);
        }
    }

    /// Writes down that the call begun last has ended well.
    #[inline]
    pub fn end_last(&self) {
        let place = self.word(STARTED).load(Ordering::Relaxed).wrapping_sub(1);
        let entry = BLOCK_HEAD + (place as usize % ENTRIES) * ENTRY;
        self.word(entry + 3).store(DONE, Ordering::Release);
    }

    #[inline]
    fn mark(&self, ticket: Ticket, state: u64) {
        // An entry that has been written over since tells nothing of this call.
        if self.word(STARTED).load(Ordering::Relaxed) - ticket.place <= ENTRIES as u64 {
            let entry = BLOCK_HEAD + (ticket.place as usize % ENTRIES) * ENTRY;
            self.word(entry + 3).store(state, Ordering::Release);
        }
    }

    #[cold]
    fn note_failure(&self, ticket: Ticket, ended: Ended) {
        self.mark(ticket, FAILED_STATE);
        let named = (u64::from(ticket.kind) << NUMBER_BITS) | (ticket.number + 1);
        if ended == Ended::Broken && self.word(BROKEN).load(Ordering::Relaxed) == 0 {
            self.word(BROKEN).store(named, Ordering::Release);
        }
        self.word(FAILED).store(named, Ordering::Release);
    }

    /// The last call of a kind, among those that the journal still has.
    pub fn last(&self, kind: u8) -> Option<Ticket> {
        let started = self.word(STARTED).load(Ordering::Relaxed);
        (started.saturating_sub(ENTRIES as u64)..started).rev().find_map(|place| {
            let entry = BLOCK_HEAD + (place as usize % ENTRIES) * ENTRY;
            let word = |at: usize| self.word(entry + at).load(Ordering::Relaxed);
            let number = (word(0) & ((1 << NUMBER_BITS) - 1)).checked_sub(1)?;
            let found = (word(0) >> NUMBER_BITS) as u8;
            let (call, bytes) = (CallWord(word(1)), word(2));
            (found == kind).then_some(Ticket { place, number, kind, call, bytes })
        })
    }

    /// Whether a call has failed in the middle.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.word(BROKEN).load(Ordering::Relaxed) != 0
    }

    /// Says since when this rank waits (ms since 1970; 0: not any more) and for whom.
    pub fn note_waiting(&self, since_ms: u64, rank: Option<usize>) {
        self.word(WAITING_FOR).store(rank.map_or(0, |rank| rank as u64 + 1), Ordering::Relaxed);
        self.word(WAITING_SINCE).store(since_ms, Ordering::Relaxed);
    }

    /// The journal that it belongs to.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        self.word(CONTEXT).store(0, Ordering::Release);
        let mut taken = self.journal.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken[self.index] = false;
    }
}
