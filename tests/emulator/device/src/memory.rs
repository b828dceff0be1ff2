//! Allocations, and what a pointer means.
//!
//! Device memory is a file in shared memory that is mapped twice: without access at the address that the program knows
//! (its *view*), and readable at the address that the emulator copies from and to (its *alias*).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::file::{SharedFile, next_number};
use crate::window::Window;
use crate::{Code, fault, process, settings, window};

const PAGE: usize = 4096;

/// What sort of memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device memory.
    Device,
    /// Device memory from a pool: no handles for other processes.
    Pool,
    /// Device memory of another process.
    Opened {
        /// The process.
        pid: u32,
        /// Its number for the memory.
        number: u64,
    },
    /// Physical memory at an address of its own choice: see [`crate::mapping`].
    Mapped,
    /// Host memory that the driver allocated.
    Pinned,
    /// Host memory of the program that the driver was told of.
    Registered,
    /// Memory that host and device reach alike.
    Managed,
}

impl Kind {
    /// Is it memory that the program must not touch?
    pub fn on_device(self) -> bool {
        matches!(self, Kind::Device | Kind::Pool | Kind::Opened { .. } | Kind::Mapped)
    }
}

/// A range of memory that the driver knows.
#[derive(Debug)]
pub struct Allocation {
    /// Unique in the process, and part of the name of its file.
    pub number: u64,
    /// First address, as the program sees it.
    pub base: usize,
    /// Size that was asked for.
    pub bytes: usize,
    /// What sort.
    pub kind: Kind,
    /// Number of its device.
    pub device: usize,
    /// The context's handle, for APIs with contexts.
    pub context: usize,
    /// Flags of the call that made it.
    pub flags: u32,
    /// Times that it was opened, for memory of other processes.
    pub(crate) opened: AtomicUsize,
    /// May the device reach it? Mapped memory only after it was asked for.
    pub(crate) accessible: AtomicBool,
    alias: usize,
    file: Option<Arc<SharedFile>>,
}

/// What a new allocation is for.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The device's number.
    pub device: usize,
    /// The context's handle; 0 without contexts.
    pub context: usize,
    /// Kept for queries.
    pub flags: u32,
}

#[derive(Default)]
struct Registry {
    by_base: BTreeMap<usize, Arc<Allocation>>,
    window: Window,
    running_kernels: usize,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
static USED_BYTES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Allocates device memory.
pub fn allocate(kind: Kind, bytes: usize, owner: Owner) -> Result<Arc<Allocation>, Code> {
    reserve_bytes(owner.device, bytes)?;
    let made = whole_pages(bytes).and_then(|whole| {
        let number = next_number();
        let file = Arc::new(SharedFile::create(number, whole)?);
        insert_view(kind, number, file, 0, bytes, None, owner)
    });
    if made.is_err() {
        return_bytes(owner.device, bytes);
    }
    fault::install();
    made
}

/// Allocates host memory: [`Kind::Pinned`] or [`Kind::Managed`].
pub fn allocate_host(kind: Kind, bytes: usize, owner: Owner) -> Result<Arc<Allocation>, Code> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let whole = whole_pages(bytes)?;
    // SAFETY: a new mapping, at an address that the system picks.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if base == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(insert(Allocation::new(
        next_number(),
        base as usize,
        bytes,
        kind,
        owner,
        base as usize,
        None,
    )))
}

/// Notes that the program's range is pinned.
pub fn register(base: usize, bytes: usize, owner: Owner) -> Result<Arc<Allocation>, Code> {
    if base == 0 || bytes == 0 || window::range().contains(&base) {
        return Err(Code::INVALID_VALUE);
    }
    let overlaps =
        lock().by_base.range(..base + bytes).next_back().is_some_and(|(_, last)| last.end() > base);
    if overlaps {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    Ok(insert(Allocation::new(next_number(), base, bytes, Kind::Registered, owner, base, None)))
}

/// Takes the allocation that starts at `base` away, if it is of a kind that `wanted` accepts.
pub fn release(base: usize, wanted: impl Fn(Kind) -> bool) -> Result<Arc<Allocation>, Code> {
    let mut registry = lock();
    let allocation = registry
        .by_base
        .get(&base)
        .filter(|found| wanted(found.kind))
        .cloned()
        .ok_or(Code::INVALID_VALUE)?;
    registry.by_base.remove(&base);
    match allocation.kind {
        Kind::Mapped => window::clear(base, allocation.bytes.next_multiple_of(PAGE)),
        kind if kind.on_device() => registry.window.give_back(base),
        _ => {}
    }
    drop(registry);
    if matches!(allocation.kind, Kind::Device | Kind::Pool) {
        return_bytes(allocation.device, allocation.bytes);
        if let Some(file) = &allocation.file {
            file.unlink();
        }
    }
    Ok(allocation)
}

/// Every allocation that `wanted` accepts, in the order of addresses.
pub fn all(wanted: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
    lock().by_base.values().filter(|allocation| wanted(allocation)).cloned().collect()
}

/// The allocation that has `address`.
pub fn find(address: usize) -> Option<Arc<Allocation>> {
    let registry = lock();
    let (_, last) = registry.by_base.range(..=address).next_back()?;
    (address < last.end()).then(|| last.clone())
}

/// Free and total memory of a device, as this process counts.
pub fn free_and_total(device: usize) -> (usize, usize) {
    let total = settings::get().memory_bytes;
    (total.saturating_sub(USED_BYTES[device].load(Ordering::Relaxed)), total)
}

/// Memory that a copy, a fill or a wait uses, at an address that the emulator can reach. Keeps the memory alive.
#[derive(Clone, Debug)]
pub struct Span {
    address: usize,
    owner: Option<Arc<Allocation>>,
}

impl Span {
    /// What `pointer` means, with `bytes` after it.
    pub fn of(pointer: usize, bytes: usize) -> Result<Span, Code> {
        let in_window = window::range().contains(&pointer);
        let owner = find(pointer).filter(|owner| in_window || pointer + bytes <= owner.end());
        match &owner {
            Some(owner) if in_window => {
                let fits = pointer.checked_add(bytes).is_some_and(|end| end <= owner.end());
                if !fits || !owner.accessible.load(Ordering::Relaxed) {
                    return Err(Code::INVALID_VALUE);
                }
                Ok(Span {
                    address: owner.alias + (pointer - owner.base),
                    owner: Some(owner.clone()),
                })
            }
            None if in_window || pointer == 0 && bytes > 0 => Err(Code::INVALID_VALUE),
            _ => Ok(Span { address: pointer, owner }),
        }
    }

    /// Where the emulator reads and writes it.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The context that it belongs to; `None` for pageable host memory.
    pub fn context(&self) -> Option<usize> {
        self.owner.as_ref().map(|owner| owner.context)
    }

    /// What sort of memory; `None` for pageable host memory.
    pub fn kind(&self) -> Option<Kind> {
        self.owner.as_ref().map(|owner| owner.kind)
    }
}

impl Allocation {
    fn new(
        number: u64,
        base: usize,
        bytes: usize,
        kind: Kind,
        owner: Owner,
        alias: usize,
        file: Option<Arc<SharedFile>>,
    ) -> Allocation {
        Allocation {
            number,
            base,
            bytes,
            kind,
            device: owner.device,
            context: owner.context,
            flags: owner.flags,
            opened: AtomicUsize::new(1),
            accessible: AtomicBool::new(kind != Kind::Mapped),
            alias,
            file,
        }
    }

    /// One past its last address.
    pub fn end(&self) -> usize {
        self.base + self.bytes
    }

    /// A handle for other processes, if it is memory that has one.
    pub fn handle(&self) -> Result<process::Handle, Code> {
        match self.kind {
            Kind::Device => Ok(process::Handle::new(self.number, self.bytes, self.device)),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn protect(&self, access: i32) {
        // SAFETY: the range is mapped for this allocation, whose removal takes the registry's lock that the caller holds.
        unsafe {
            libc::mprotect(
                self.base as *mut libc::c_void,
                self.bytes.next_multiple_of(PAGE),
                access,
            )
        };
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.kind != Kind::Registered {
            // SAFETY: for host kinds the memory itself, for others the alias: mapped for this allocation, and whoever
            // copies to or from it holds a reference.
            unsafe {
                libc::munmap(self.alias as *mut libc::c_void, self.bytes.next_multiple_of(PAGE))
            };
        }
    }
}

/// Gives `file` an alias and a view, the latter at `at` or at addresses of its own.
pub(crate) fn insert_view(
    kind: Kind,
    number: u64,
    file: Arc<SharedFile>,
    offset: usize,
    bytes: usize,
    at: Option<usize>,
    owner: Owner,
) -> Result<Arc<Allocation>, Code> {
    let whole = whole_pages(bytes)?;
    let alias = file.map(offset, whole)?;
    let mut registry = lock();
    let taken = match at {
        Some(base) => Ok(base),
        None => registry.window.take(whole, 1),
    };
    // From here on the alias is the allocation's to unmap.
    let base = taken.as_ref().copied().unwrap_or(0);
    let descriptor = file.descriptor();
    let allocation = Arc::new(Allocation::new(number, base, bytes, kind, owner, alias, Some(file)));
    taken?;
    let access = if registry.running_kernels > 0 {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_NONE
    };
    // SAFETY: the range is the window's, and was taken for this view.
    let view = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(
            base as *mut libc::c_void,
            whole,
            access,
            flags,
            descriptor,
            offset as libc::off_t,
        )
    };
    if view == libc::MAP_FAILED {
        if at.is_none() {
            registry.window.give_back(base);
        }
        return Err(Code::MAP_FAILED);
    }
    registry.by_base.insert(base, allocation.clone());
    Ok(allocation)
}

/// Addresses for memory that is mapped later.
pub(crate) fn take_addresses(bytes: usize, alignment: usize) -> Result<usize, Code> {
    lock().window.take(bytes, alignment)
}

/// Gives back what [`take_addresses`] returned.
pub(crate) fn give_addresses_back(base: usize) {
    lock().window.give_back(base);
}

/// Counts `bytes` of a device as used, unless it has not so many.
pub(crate) fn reserve_bytes(device: usize, bytes: usize) -> Result<(), Code> {
    let total = settings::get().memory_bytes;
    let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= total);
    USED_BYTES[device]
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(())
}

/// Undoes [`reserve_bytes`].
pub(crate) fn return_bytes(device: usize, bytes: usize) {
    USED_BYTES[device].fetch_sub(bytes, Ordering::Relaxed);
}

/// Opens the views of all device memory until the result is dropped.
pub(crate) fn open_to_kernel() -> KernelAccess {
    let mut registry = lock();
    registry.running_kernels += 1;
    if registry.running_kernels == 1 {
        registry.protect_all(libc::PROT_READ | libc::PROT_WRITE);
    }
    KernelAccess
}

/// A kernel is running.
pub(crate) struct KernelAccess;

impl Drop for KernelAccess {
    fn drop(&mut self) {
        let mut registry = lock();
        registry.running_kernels -= 1;
        if registry.running_kernels == 0 {
            registry.protect_all(libc::PROT_NONE);
        }
    }
}

impl Registry {
    fn protect_all(&self, access: i32) {
        for allocation in self.by_base.values().filter(|allocation| allocation.kind.on_device()) {
            allocation.protect(access);
        }
    }
}

/// Number and size of the allocation that has `address`. For the signal handler: does not wait, does not allocate.
pub(crate) fn describe(address: usize) -> Option<(u64, usize)> {
    let registry = REGISTRY.try_lock().ok()?;
    let (_, last) = registry.as_ref()?.by_base.range(..=address).next_back()?;
    (address < last.end()).then_some((last.number, last.bytes))
}

fn insert(allocation: Allocation) -> Arc<Allocation> {
    let allocation = Arc::new(allocation);
    lock().by_base.insert(allocation.base, allocation.clone());
    allocation
}

fn whole_pages(bytes: usize) -> Result<usize, Code> {
    bytes.checked_next_multiple_of(PAGE).filter(|&bytes| bytes > 0).ok_or(Code::INVALID_VALUE)
}

struct Locked(MutexGuard<'static, Option<Registry>>);

impl std::ops::Deref for Locked {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        self.0.as_ref().expect("made by lock")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Registry {
        self.0.as_mut().expect("made by lock")
    }
}

fn lock() -> Locked {
    let mut registry = REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    registry.get_or_insert_default();
    Locked(registry)
}
