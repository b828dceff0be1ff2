//! What a journal says: the bytes of another process, taken apart with suspicion.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::call::CallWord;
use super::journal::{
    BLOCK_BYTES, BLOCK_HEAD, BLOCKS, BROKEN, CONTEXT, DONE, ENTRIES, ENTRY, FAILED, FAILED_STATE,
    FILE_BYTES, HEAD_BYTES, HOST_AT, HOST_BYTES, MAGIC, NAME, NUMBER_BITS, RANK, RUNNING, SIZE,
    STARTED, WAITING_FOR, WAITING_SINCE,
};

/// A journal that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A system call failed.
    #[error("reading {path} failed: {source}")]
    System {
        /// What was read.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The process has no journal that this user may read.
    #[error(
        "process {pid} has no journal: it runs no hetccl, or belongs to another user or pid namespace"
    )]
    NoJournal {
        /// Whose.
        pid: u32,
    },
    /// The bytes are no journal.
    #[error("{bytes} bytes that do not begin as a journal of this version does")]
    Foreign {
        /// How many there are.
        bytes: usize,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationState {
    /// Not yet.
    Running,
    /// Well.
    Done,
    /// With an error.
    Failed,
}

impl OperationState {
    /// The word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            OperationState::Running => "running",
            OperationState::Done => "done",
            OperationState::Failed => "failed",
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// Its number among the communicator's calls of its kind.
    pub number: u64,
    /// Blocking (0), nonblocking (1), neighbourhood (2).
    pub kind: u8,
    /// The call.
    pub call: CallWord,
    /// Bytes of the rank's part, where they must be equal on all ranks.
    pub bytes: u64,
    /// How it ended.
    pub state: OperationState,
}

/// One communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunicatorRecord {
    /// The context id.
    pub context: u32,
    /// The process's rank in it.
    pub rank: u32,
    /// Its ranks.
    pub size: u32,
    /// Calls so far.
    pub started: u64,
    /// Kind and number of the last call that failed.
    pub failed: Option<(u8, u64)>,
    /// Kind and number of the call after which the communicator was of no more use.
    pub broken: Option<(u8, u64)>,
    /// Since when the rank waits, in ms since 1970.
    pub waiting_since_ms: Option<u64>,
    /// For whom.
    pub waiting_for: Option<u32>,
    /// The last calls, oldest first.
    pub operations: Vec<OperationRecord>,
}

/// A whole journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// Its rank in the job.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// Its host.
    pub host: String,
    /// Its communicators.
    pub communicators: Vec<CommunicatorRecord>,
}

impl Snapshot {
    /// The journal of a running process, which may be stopped or stuck.
    ///
    /// # Errors
    /// No such process, no journal, or not this user's.
    pub fn of_process(pid: u32) -> Result<Snapshot, JournalError> {
        Snapshot::parse(&whole(&find(pid)?)?)
    }

    /// A journal from its bytes.
    ///
    /// # Errors
    /// [`JournalError::Foreign`]; anything else that is odd is left out.
    pub fn parse(bytes: &[u8]) -> Result<Snapshot, JournalError> {
        let word = |i: usize| word_at(bytes, i);
        if word(0) != Some(MAGIC) || bytes.len() < HEAD_BYTES {
            return Err(JournalError::Foreign { bytes: bytes.len() });
        }
        let host = &bytes[HOST_AT..HOST_AT + HOST_BYTES];
        let host = host.split(|&byte| byte == 0).next().unwrap_or_default();
        let number = |i| u32::try_from(word(i).unwrap_or(0)).unwrap_or(u32::MAX);
        Ok(Snapshot {
            pid: number(1),
            rank: number(2),
            size: number(3),
            host: String::from_utf8_lossy(host).chars().filter(|c| !c.is_control()).collect(),
            communicators: bytes[HEAD_BYTES..]
                .chunks_exact(BLOCK_BYTES)
                .take(BLOCKS)
                .filter_map(communicator)
                .collect(),
        })
    }
}

fn word_at(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * 8..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// What a block says; `None` for a free one.
fn communicator(block: &[u8]) -> Option<CommunicatorRecord> {
    let word = |i| word_at(block, i).unwrap_or(0);
    let context = u32::try_from(word(CONTEXT).checked_sub(1)?).ok()?;
    let started = word(STARTED);
    let place = |value: u64| {
        let number = (value & ((1 << NUMBER_BITS) - 1)).checked_sub(1)?;
        Some(((value >> NUMBER_BITS) as u8, number))
    };
    let operations = (started.saturating_sub(ENTRIES as u64)..started)
        .filter_map(|index| {
            let entry = BLOCK_HEAD + (index as usize % ENTRIES) * ENTRY;
            let (kind, number) = place(word(entry))?;
            let state = match word(entry + 3) {
                RUNNING => OperationState::Running,
                DONE => OperationState::Done,
                FAILED_STATE => OperationState::Failed,
                _ => return None,
            };
            let (call, bytes) = (CallWord(word(entry + 1)), word(entry + 2));
            Some(OperationRecord { number, kind, call, bytes, state })
        })
        .collect();
    Some(CommunicatorRecord {
        context,
        rank: u32::try_from(word(RANK)).ok()?,
        size: u32::try_from(word(SIZE)).ok()?,
        started,
        failed: place(word(FAILED)),
        broken: place(word(BROKEN)),
        waiting_since_ms: Some(word(WAITING_SINCE)).filter(|&since| since != 0),
        waiting_for: word(WAITING_FOR).checked_sub(1).and_then(|rank| u32::try_from(rank).ok()),
        operations,
    })
}

/// The place of a process's journal in `/proc`.
fn find(pid: u32) -> Result<PathBuf, JournalError> {
    let folder = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&folder)
        .map_err(|source| JournalError::System { path: folder, source })?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| is_journal(path))
        .ok_or(JournalError::NoJournal { pid })
}

/// Whether a descriptor in `/proc` is a journal's: nothing else of another process is opened.
fn is_journal(path: &Path) -> bool {
    path.read_link()
        .is_ok_and(|target| target.to_string_lossy().starts_with(&format!("/memfd:{NAME}")))
}

fn whole(path: &Path) -> Result<Vec<u8>, JournalError> {
    let system = |source| JournalError::System { path: path.display().to_string(), source };
    let file = File::open(path).map_err(system)?;
    read(&file, 0, FILE_BYTES).map_err(system)
}

fn read(file: &File, at: usize, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut bytes[filled..], (at + filled) as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Another process's journal, kept open: it can be read even after the process has gone.
#[derive(Debug)]
pub(super) struct OpenJournal {
    file: File,
    /// Where the communicator was found last.
    block: usize,
}

impl OpenJournal {
    /// Opens descriptor `fd` of a process, if that is a journal.
    pub(super) fn open(pid: u32, fd: i32) -> Option<OpenJournal> {
        let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
        if !is_journal(&path) {
            return None;
        }
        Some(OpenJournal { file: File::open(path).ok()?, block: 0 })
    }

    /// What it says of a communicator in which the process has this rank.
    pub(super) fn communicator(
        &mut self,
        context: u32,
        rank: u32,
        size: u32,
    ) -> Option<CommunicatorRecord> {
        let fits = |record: &CommunicatorRecord| {
            (record.context, record.rank, record.size) == (context, rank, size)
        };
        let block = read(&self.file, HEAD_BYTES + self.block * BLOCK_BYTES, BLOCK_BYTES).ok()?;
        if let Some(record) = communicator(&block).filter(fits) {
            return Some(record);
        }
        let all = read(&self.file, HEAD_BYTES, FILE_BYTES - HEAD_BYTES).ok()?;
        let mut blocks = all.chunks_exact(BLOCK_BYTES).enumerate();
        let (index, record) =
            blocks.find_map(|(i, block)| Some((i, communicator(block).filter(fits)?)))?;
        self.block = index;
        Some(record)
    }
}
