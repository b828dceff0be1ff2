//! The memory that ranks share: made by one, opened by the others, gone with the last of them.
//!
//! First choice is an anonymous file (`memfd_create`), which the others open through `/proc/<pid>/fd`: it needs no
//! `/dev/shm` and no name that could be left behind. Where that is not allowed (another pid namespace, no `/proc`), a file in
//! `/dev/shm`, with its memory reserved so that a full file system is an error here and not a signal later; its name goes as
//! soon as everybody has it open.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Layout;

/// What the others need to open a segment, in a message.
pub type Descriptor = [u8; DESCRIPTOR_BYTES];

const DESCRIPTOR_BYTES: usize = 40;

/// In the name of every segment's file.
const NAME: &str = "hetccl-segment";

/// Kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// An anonymous file.
    Anonymous,
    /// A file in a folder of a memory file system, for a moment.
    Named,
}

/// A segment that can't be had here.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// What was opened is not the segment that was described.
    #[error(
        "{path} is not the segment of rank 0; is it on another node, or in another pid namespace?"
    )]
    Foreign {
        /// What was opened.
        path: String,
    },
}

fn system<T>(what: impl FnOnce() -> String, result: io::Result<T>) -> Result<T, SegmentError> {
    result.map_err(|source| SegmentError::System { what: what(), source })
}

/// How long a segment is, and what is where in it. Its first eight bytes are the segment's own.
pub trait Room: Copy {
    /// Bytes of the segment.
    fn segment_bytes(&self) -> usize;
}

impl Room for Layout {
    fn segment_bytes(&self) -> usize {
        Layout::segment_bytes(self)
    }
}

/// So many bytes, of which the user knows what they are.
impl Room for usize {
    fn segment_bytes(&self) -> usize {
        *self
    }
}

/// Shared memory, mapped here.
#[derive(Debug)]
pub struct Segment<L: Room = Layout> {
    base: *mut u8,
    layout: L,
    id: u64,
    /// Held until the others have opened it.
    file: Option<File>,
    path: Option<PathBuf>,
}

// SAFETY: the memory is shared between processes anyway; all access goes through atomics or the protocol of `lane`.
unsafe impl<L: Room + Send> Send for Segment<L> {}
// SAFETY: what a shared reference gives is an address and numbers that do not change.
unsafe impl<L: Room + Sync> Sync for Segment<L> {}

/// The first words of a segment.
const ID_AT: usize = 0;

impl<L: Room> Segment<L> {
    /// A new segment, all zero, and its description for the others. `folder` holds the file of a named one.
    ///
    /// # Errors
    /// No file, no room, no address space.
    pub fn create(
        layout: L,
        kind: SegmentKind,
        folder: &Path,
    ) -> Result<(Segment<L>, Descriptor), SegmentError> {
        let id = fresh_id()?;
        let bytes = layout.segment_bytes();
        let (file, path) = match kind {
            SegmentKind::Anonymous => (anonymous()?, None),
            SegmentKind::Named => {
                let path = folder.join(format!("{NAME}-{id:016x}"));
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path);
                (system(|| format!("creating {}", path.display()), file)?, Some(path))
            }
        };
        let mut segment = Segment { base: std::ptr::null_mut(), layout, id, file: None, path };
        system(|| "ftruncate".to_owned(), file.set_len(bytes as u64))?;
        if kind == SegmentKind::Named {
            // SAFETY: a system call on a file of ours.
            let status = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) };
            let result =
                if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) };
            system(|| format!("reserving {bytes} bytes in {}", folder.display()), result)?;
        }
        segment.base = map(&file, bytes)?;
        segment.id_word().store(id, Ordering::Release);
        let descriptor = segment.describe(&file, kind);
        segment.file = Some(file);
        Ok((segment, descriptor))
    }

    /// Opens the segment that another rank has described.
    ///
    /// # Errors
    /// It can't be opened or mapped, or is another one.
    pub fn open(
        layout: L,
        descriptor: &Descriptor,
        folder: &Path,
    ) -> Result<Segment<L>, SegmentError> {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| descriptor[i * 8 + b]));
        let (kind, id, pid, fd) = (word(0), word(1), word(2), word(3));
        let path = match kind {
            0 => PathBuf::from(format!("/proc/{pid}/fd/{fd}")),
            _ => folder.join(format!("{NAME}-{id:016x}")),
        };
        let foreign = || SegmentError::Foreign { path: path.display().to_string() };
        if kind == 0 {
            // Another process's file is opened only when its name says that it is a segment.
            let target = system(|| format!("reading {}", path.display()), path.read_link())?;
            if !target.as_os_str().as_bytes().windows(NAME.len()).any(|w| w == NAME.as_bytes()) {
                return Err(foreign());
            }
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path);
        let file = system(|| format!("opening {}", path.display()), file)?;
        let bytes = layout.segment_bytes();
        let length = system(|| "fstat".to_owned(), file.metadata())?.size();
        if length != bytes as u64 {
            return Err(foreign());
        }
        let segment = Segment { base: map(&file, bytes)?, layout, id, file: None, path: None };
        if segment.id_word().load(Ordering::Acquire) != id {
            return Err(foreign());
        }
        Ok(segment)
    }

    /// Everybody who can has opened it: no name is needed any more.
    pub fn seal(&mut self) {
        self.file = None;
        if let Some(path) = self.path.take() {
            // Somebody who removed it before did what was wanted.
            let _ = std::fs::remove_file(path);
        }
    }

    /// The number that tells it from all others.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its layout.
    pub fn layout(&self) -> L {
        self.layout
    }

    /// Its first byte, which stays mapped for as long as `self` lives.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    fn id_word(&self) -> &AtomicU64 {
        // SAFETY: the segment is mapped, page-aligned, and longer than a word.
        unsafe { &*self.base.add(ID_AT).cast::<AtomicU64>() }
    }

    fn describe(&self, file: &File, kind: SegmentKind) -> Descriptor {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        let words = [
            u64::from(kind == SegmentKind::Named),
            self.id,
            u64::from(std::process::id()),
            file.as_raw_fd() as u64,
        ];
        for (i, word) in words.into_iter().enumerate() {
            descriptor[i * 8..i * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        descriptor
    }
}

impl<L: Room> Drop for Segment<L> {
    fn drop(&mut self) {
        self.seal();
        if !self.base.is_null() {
            // SAFETY: mapped in `map` with this length, and nobody has a reference past the segment's life.
            unsafe { libc::munmap(self.base.cast(), self.layout.segment_bytes()) };
        }
    }
}

fn anonymous() -> Result<File, SegmentError> {
    let name = CString::new(NAME).unwrap_or_default();
    // SAFETY: the name is a string of ours.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(SegmentError::System {
            what: "memfd_create".to_owned(),
            source: io::Error::last_os_error(),
        });
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn map(file: &File, bytes: usize) -> Result<*mut u8, SegmentError> {
    // SAFETY: a new shared mapping of a file; no memory of ours is touched.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        let source = io::Error::last_os_error();
        return Err(SegmentError::System { what: format!("mapping {bytes} bytes"), source });
    }
    Ok(base.cast())
}

fn fresh_id() -> Result<u64, SegmentError> {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    system(|| "reading /dev/urandom".to_owned(), read)?;
    // 0 is what a segment holds before it has a number.
    Ok(u64::from_le_bytes(bytes) | 1)
}
