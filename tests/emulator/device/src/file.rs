//! Files in shared memory: what device memory and events of several processes lie in.
//!
//! A name has vendor, process and a number that is never used again, so that a handle to freed memory cannot find other
//! memory. Files go when they are dropped, when the process exits, and, after a crash, when the next process starts.

use std::ffi::CString;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Code, vendor};

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "hetccl-emulator";

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A number that nothing else in this process has.
pub fn next_number() -> u64 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// An open file in shared memory.
#[derive(Debug)]
pub struct SharedFile {
    descriptor: i32,
    /// Of the creating process; `None` when another made the file.
    path: Option<String>,
}

impl SharedFile {
    /// Makes the file `number` of this process.
    pub fn create(number: u64, bytes: usize) -> Result<SharedFile, Code> {
        let path = path(std::process::id(), number);
        let file = SharedFile {
            descriptor: open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?,
            path: Some(path),
        };
        // SAFETY: `statvfs` is plain data, and the descriptor is this file's own.
        let fits = unsafe {
            let mut system: libc::statvfs = std::mem::zeroed();
            libc::fstatvfs(file.descriptor, &mut system) == 0
                && (system.f_bavail as usize).saturating_mul(system.f_frsize as usize) >= bytes
                && libc::ftruncate(file.descriptor, bytes as libc::off_t) == 0
        };
        if fits { Ok(file) } else { Err(Code::OUT_OF_MEMORY) }
    }

    /// Opens the file `number` of process `pid`.
    pub fn open(pid: u32, number: u64) -> Result<SharedFile, Code> {
        Ok(SharedFile { descriptor: open(&path(pid, number), libc::O_RDWR)?, path: None })
    }

    /// Takes over a descriptor that the caller keeps: it is duplicated.
    pub fn from_descriptor(descriptor: i32) -> Result<SharedFile, Code> {
        // SAFETY: a number that is not a descriptor is refused by the system.
        match unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) } {
            -1 => Err(Code::INVALID_VALUE),
            descriptor => Ok(SharedFile { descriptor, path: None }),
        }
    }

    /// A new descriptor of the file, the caller's to close.
    pub fn duplicate(&self) -> Result<i32, Code> {
        // SAFETY: the descriptor is this file's own.
        match unsafe { libc::fcntl(self.descriptor, libc::F_DUPFD_CLOEXEC, 0) } {
            -1 => Err(Code::OPERATING_SYSTEM),
            descriptor => Ok(descriptor),
        }
    }

    /// Size of the file.
    pub fn bytes(&self) -> usize {
        // SAFETY: `stat` is plain data, and the descriptor is this file's own.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.descriptor, &mut stat) == 0 { stat.st_size as usize } else { 0 }
        }
    }

    /// Maps `bytes` from `offset`, anywhere.
    pub fn map(&self, offset: usize, bytes: usize) -> Result<usize, Code> {
        // SAFETY: a new mapping, at an address that the system picks.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.descriptor,
                offset as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(address as usize) }
    }

    /// The descriptor, for as long as the file lives.
    pub fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Takes the name away: no other process can open the file any more.
    pub fn unlink(&self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this file's own, and nothing uses it after.
        unsafe { libc::close(self.descriptor) };
        self.unlink();
    }
}

fn path(pid: u32, number: u64) -> String {
    format!("{FOLDER}/{PREFIX}-{}-{pid}-{number}", vendor().name())
}

fn open(path: &str, flags: i32) -> Result<i32, Code> {
    let path = CString::new(path).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: a terminated string, and a mode for files that are made.
    match unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600 as libc::c_uint) } {
        -1 => Err(Code::INVALID_VALUE),
        descriptor => Ok(descriptor),
    }
}

/// Removes files of processes that are gone, and of this one (it may be what `exec` made of another program).
pub(crate) fn remove_leftovers() {
    remove(|pid| {
        // SAFETY: signal 0 only asks whether the process exists.
        let gone = unsafe { libc::kill(pid as libc::pid_t, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        gone || pid == std::process::id()
    });
}

/// Has the files removed when the process exits.
pub(crate) fn remove_at_exit() {
    extern "C" fn at_exit() {
        let own = std::process::id();
        remove(|pid| pid == own);
    }
    // SAFETY: the function stays loaded as long as the library, whose unloading runs it.
    unsafe { libc::atexit(at_exit) };
}

fn remove(unwanted: impl Fn(u32) -> bool) {
    let prefix = format!("{PREFIX}-{}-", vendor().name());
    let Ok(entries) = fs::read_dir(FOLDER) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
            continue;
        };
        let Some(pid) = rest.split('-').next().and_then(|pid| pid.parse().ok()) else { continue };
        if unwanted(pid) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
