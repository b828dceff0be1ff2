//! Host memory of two processes that both their devices copy from and to: a message between devices that can't read each
//! other goes through it in pieces, without a copy by the CPU.
//!
//! ```text
//! page 0    token | filled | drained | opened        counters of pieces, each in a cache line of its own
//! page 1    slot 0 | slot 1 | ...           piece n of a ring's life is in slot n modulo the number of slots
//! ```
//!
//! The sender makes the ring, in an anonymous file that others open through `/proc`, so nothing is left behind when it
//! ends. The token proves to the receiver that it has opened what was meant.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use hetccl_core::{Address, MemoryType, Region};

use crate::driver::{Context, Driver};
use crate::gpus::Lane;

/// Pieces in a ring at a time.
pub const SLOTS: usize = 4;

const PAGE: usize = 4096;
const TOKEN_BYTES: usize = 16;
const FILLED_AT: usize = 64;
const DRAINED_AT: usize = 128;
const OPENED_AT: usize = 192;

/// Other processes' rings that are kept open.
const KEPT: usize = 64;

/// Why a message gets no ring now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRing {
    /// All are in use.
    Busy,
    /// The system or the driver refuses.
    Impossible,
}

/// A ring, as another process is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingName {
    /// The process that made it.
    pub pid: u32,
    /// Its number of the file there.
    pub file: u32,
    /// What page 0 begins with.
    pub token: [u8; TOKEN_BYTES],
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// The number of the next message's first piece.
    pub first: u64,
}

impl RingName {
    /// Bytes of the wire form.
    pub const WIRE_BYTES: usize = 24 + TOKEN_BYTES;

    /// For the wire.
    pub fn to_bytes(&self) -> [u8; RingName::WIRE_BYTES] {
        let mut bytes = [0; RingName::WIRE_BYTES];
        bytes[..4].copy_from_slice(&self.pid.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.file.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..].copy_from_slice(&self.token);
        bytes
    }

    /// From the wire.
    pub fn from_bytes(bytes: &[u8; RingName::WIRE_BYTES]) -> RingName {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        RingName {
            pid: half(0),
            file: half(4),
            slot_bytes: word(8),
            first: word(16),
            token: std::array::from_fn(|i| bytes[24 + i]),
        }
    }
}

/// Memory of a file, mapped until dropped.
#[derive(Debug)]
struct Mapped {
    address: usize,
    len_bytes: usize,
}

impl Mapped {
    fn new(file: &impl AsRawFd, len_bytes: usize) -> io::Result<Mapped> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever there is room; of a file that is open.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { address: address.expose_provenance(), len_bytes })
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: mapped for as long as `self` lives.
        unsafe { counter(self.address, at) }
    }
}

/// A counter of the ring at an address.
///
/// # Safety
/// Page 0 of a ring is mapped there for `'a`.
unsafe fn counter<'a>(address: usize, at: usize) -> &'a AtomicU64 {
    let address = std::ptr::with_exposed_provenance::<AtomicU64>(address + at);
    // SAFETY: the caller's promise; inside page 0, aligned, and only ever used as an atomic.
    unsafe { &*address }
}

/// Where a piece of a ring's life is.
fn slot(address: usize, piece: u64, slot_bytes: usize) -> Region {
    let index = (piece % SLOTS as u64) as usize;
    let address = Address(address + PAGE + index * slot_bytes);
    Region { address, len_bytes: slot_bytes, memory: MemoryType::Host }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this length; whoever drops it is done with the memory.
        unsafe {
            libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.len_bytes)
        };
    }
}

const fn file_bytes(slot_bytes: usize) -> usize {
    PAGE + SLOTS * slot_bytes
}

/// A ring of this process, for messages that it sends.
#[derive(Debug)]
pub struct Ring {
    pub(crate) lane: Lane,
    memory: Mapped,
    file: OwnedFd,
    token: [u8; TOKEN_BYTES],
    slot_bytes: usize,
    /// Pieces of the messages before.
    sent: u64,
}

impl Ring {
    /// A ring that the context's device copies to.
    ///
    /// # Errors
    /// The system's, or that of the driver.
    pub(crate) fn new(
        driver: &dyn Driver,
        context: Context,
        lane: Lane,
        slot_bytes: usize,
    ) -> io::Result<Ring> {
        let slot_bytes = slot_bytes.next_multiple_of(PAGE);
        // SAFETY: a constant name.
        let file = unsafe { libc::memfd_create(c"hetccl-ring".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: an open file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), file_bytes(slot_bytes) as libc::off_t) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        let memory = Mapped::new(&file, file_bytes(slot_bytes))?;
        let mut token = [0u8; TOKEN_BYTES];
        // SAFETY: as many bytes as there is room for.
        let got = unsafe { libc::getrandom(token.as_mut_ptr().cast(), TOKEN_BYTES, 0) };
        if got != TOKEN_BYTES as isize {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page 0 is mapped, and nobody else has it yet.
        unsafe {
            let page = std::ptr::with_exposed_provenance_mut::<u8>(memory.address);
            std::ptr::copy_nonoverlapping(token.as_ptr(), page, TOKEN_BYTES);
        }
        driver.pin(context, memory.address, memory.len_bytes).map_err(io::Error::other)?;
        Ok(Ring { lane, memory, file, token, slot_bytes, sent: 0 })
    }

    pub(crate) fn unpin(&self, driver: &dyn Driver, context: Context) {
        driver.unpin(context, self.memory.address);
    }

    /// What the receiver needs to know before the next message.
    pub fn name(&self) -> RingName {
        RingName {
            pid: std::process::id(),
            file: self.file.as_raw_fd() as u32,
            token: self.token,
            slot_bytes: self.slot_bytes as u64,
            first: self.sent,
        }
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Where the n-th piece of the message goes.
    pub fn slot(&self, piece: u64) -> Region {
        slot(self.memory.address, self.sent + piece, self.slot_bytes)
    }

    /// Lets the receiver read the first `pieces` of the message.
    pub fn set_filled(&self, pieces: u64) {
        self.memory.counter(FILLED_AT).store(self.sent + pieces, Ordering::Release);
    }

    /// Whether the receiver of the message has the ring.
    pub fn is_open(&self) -> bool {
        self.memory.counter(OPENED_AT).load(Ordering::Acquire) == self.sent + 1
    }

    /// How many pieces of the message the receiver has read.
    pub fn drained(&self) -> u64 {
        self.memory.counter(DRAINED_AT).load(Ordering::Acquire).saturating_sub(self.sent)
    }

    /// Notes that a message of so many pieces has been read to its end.
    pub fn advance(&mut self, pieces: u64) {
        self.sent += pieces;
    }
}

/// Another process's ring, for one message from it.
#[derive(Debug)]
pub struct RemoteRing {
    index: usize,
    address: usize,
    name: RingName,
}

/// A ring that is open here.
#[derive(Debug)]
struct Open {
    name: RingName,
    memory: Mapped,
    /// The lane whose device copies from it; `None`: only the CPU does.
    lane: Option<Lane>,
    users: usize,
    used: u64,
}

/// Other processes' rings.
#[derive(Debug, Default)]
pub(crate) struct RemoteRings {
    open: slab::Slab<Open>,
    clock: u64,
}

impl RemoteRings {
    /// Opens a ring, for copies of the lane's device or, without one, of the CPU; `None` where that can't be.
    pub(crate) fn open(
        &mut self,
        name: &RingName,
        device: Option<(Lane, &dyn Driver, Context)>,
        unpin: &mut dyn FnMut(Lane, usize),
    ) -> Option<RemoteRing> {
        self.clock += 1;
        let lane = device.map(|(lane, ..)| lane);
        let same = |open: &Open| {
            (open.name.pid, open.name.token) == (name.pid, name.token) && open.lane == lane
        };
        let known = self.open.iter().find(|(_, open)| same(open)).map(|(index, _)| index);
        let index = match known {
            Some(index) => index,
            None => {
                if self.open.len() >= KEPT {
                    self.close_oldest(unpin);
                }
                let memory = map(name)?;
                if let Some((_, driver, context)) = device {
                    driver.pin(context, memory.address, memory.len_bytes).ok()?;
                }
                self.open.insert(Open { name: *name, memory, lane, users: 0, used: 0 })
            }
        };
        let open = &mut self.open[index];
        open.users += 1;
        open.used = self.clock;
        open.memory.counter(OPENED_AT).store(name.first + 1, Ordering::Release);
        Some(RemoteRing { index, address: open.memory.address, name: *name })
    }

    /// Notes that a message is over.
    pub(crate) fn release(&mut self, ring: &RemoteRing) {
        self.open[ring.index].users -= 1;
    }

    fn close_oldest(&mut self, unpin: &mut dyn FnMut(Lane, usize)) {
        let idle = self.open.iter().filter(|(_, open)| open.users == 0);
        if let Some((index, _)) = idle.min_by_key(|(_, open)| open.used) {
            let open = self.open.remove(index);
            if let Some(lane) = open.lane {
                unpin(lane, open.memory.address);
            }
        }
    }

    /// Closes all; nothing uses them any more.
    pub(crate) fn close_all(&mut self, unpin: &mut dyn FnMut(Lane, usize)) {
        for open in self.open.drain() {
            if let Some(lane) = open.lane {
                unpin(lane, open.memory.address);
            }
        }
    }
}

/// Maps another process's ring, if it is the one that is meant.
fn map(name: &RingName) -> Option<Mapped> {
    let path = format!("/proc/{}/fd/{}", name.pid, name.file);
    let slot_bytes = usize::try_from(name.slot_bytes).ok()?;
    let file = std::fs::File::options().read(true).write(true).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let mut token = [0; TOKEN_BYTES];
    file.read_exact_at(&mut token, 0).ok()?;
    let meant = token == name.token && metadata.len() == file_bytes(slot_bytes) as u64;
    meant.then(|| Mapped::new(&file, file_bytes(slot_bytes)).ok()).flatten()
}

impl RemoteRing {
    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the ring stays mapped while it has users, of which this is one.
        unsafe { counter(self.address, at) }
    }

    /// Where the n-th piece of the message is.
    pub fn slot(&self, piece: u64) -> Region {
        slot(self.address, self.name.first + piece, self.slot_bytes())
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.name.slot_bytes as usize
    }

    /// Copies the beginning of the n-th piece to host memory.
    ///
    /// # Safety
    /// `into` is host memory that may be written, no longer than a slot.
    pub unsafe fn read(&self, piece: u64, into: Region) {
        let from = std::ptr::with_exposed_provenance::<u8>(self.slot(piece).address.0);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(into.address.0);
        // SAFETY: the slot is mapped, the sender has filled it and waits; the caller vouches for `into`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, into.len_bytes) };
    }

    /// How many pieces of the message are there.
    pub fn filled(&self) -> u64 {
        self.counter(FILLED_AT).load(Ordering::Acquire).saturating_sub(self.name.first)
    }

    /// Lets the sender use the slots of the first `pieces` again.
    pub fn set_drained(&self, pieces: u64) {
        self.counter(DRAINED_AT).store(self.name.first + pieces, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_wire() {
        let name = RingName { pid: 7, file: 9, token: [3; 16], slot_bytes: 1 << 40, first: 5 };
        assert_eq!(RingName::from_bytes(&name.to_bytes()), name);
    }

    #[test]
    fn another_file_of_the_same_number_is_not_taken_for_the_ring() {
        let file = tempfile();
        let name = RingName {
            pid: std::process::id(),
            file: file.as_raw_fd() as u32,
            token: [3; 16],
            slot_bytes: PAGE as u64,
            first: 0,
        };
        assert!(map(&name).is_none(), "too short");
        file.set_len(file_bytes(PAGE) as u64).unwrap();
        assert!(map(&name).is_none(), "no token");
        file.write_all_at(&name.token, 0).unwrap();
        let mapped = map(&name).unwrap();
        mapped.counter(FILLED_AT).store(42, Ordering::Release);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, FILLED_AT as u64).unwrap();
        assert_eq!(u64::from_le_bytes(word), 42);
        assert!(map(&RingName { token: [4; 16], ..name }).is_none());
        assert!(map(&RingName { file: u32::MAX, ..name }).is_none());
    }

    fn tempfile() -> std::fs::File {
        // SAFETY: a constant name; the file is nobody else's.
        unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), 0)) }
    }
}
