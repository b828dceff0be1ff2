//! The vocabulary of the engine: ranks, counts, bytes, memory types and regions.

use std::fmt;

/// A process of a communicator, 0 to size - 1 (the MPI term).
///
/// On an inter-communicator the engine numbers the processes that one rank can reach: its own group
/// first, `0..local_size`, then the remote group, `local_size..local_size + remote_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into per-rank tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for Rank {
    /// # Panics
    /// When `index` does not fit in 32 bits; MPI's ranks are C `int`s, so no communicator gets there.
    #[inline]
    fn from(index: usize) -> Self {
        Rank(u32::try_from(index).expect("a rank fits in 32 bits"))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a piece of memory lives; found by pointer query, never guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryType {
    /// Memory the CPU reads and writes; pinned host memory too.
    #[default]
    Host,
    /// NVIDIA device memory.
    Cuda,
    /// NVIDIA managed memory.
    CudaManaged,
    /// AMD device memory.
    Rocm,
    /// AMD managed memory.
    RocmManaged,
    /// Level Zero device memory. What Level Zero calls host memory is [`Host`](MemoryType::Host).
    LevelZero,
    /// Level Zero shared memory.
    LevelZeroManaged,
}

impl MemoryType {
    /// All of them, host memory first.
    pub const ALL: [MemoryType; 7] = [
        MemoryType::Host,
        MemoryType::Cuda,
        MemoryType::CudaManaged,
        MemoryType::Rocm,
        MemoryType::RocmManaged,
        MemoryType::LevelZero,
        MemoryType::LevelZeroManaged,
    ];

    /// The word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryType::Host => "host",
            MemoryType::Cuda => "cuda",
            MemoryType::CudaManaged => "cuda-managed",
            MemoryType::Rocm => "rocm",
            MemoryType::RocmManaged => "rocm-managed",
            MemoryType::LevelZero => "level-zero",
            MemoryType::LevelZeroManaged => "level-zero-managed",
        }
    }
}

/// A virtual address, opaque to this crate: only a [`Device`](crate::Device) or a
/// [`Transport`](crate::Transport) turns it into a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub usize);

/// A contiguous piece of memory: where, how long, of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub address: Address,
    /// Length in bytes.
    pub len_bytes: usize,
    /// What can touch it.
    pub memory: MemoryType,
}

impl Region {
    /// Host memory that is only read.
    #[inline]
    pub fn of_bytes(bytes: &[u8]) -> Region {
        let address = Address(bytes.as_ptr().expose_provenance());
        Region { address, len_bytes: bytes.len(), memory: MemoryType::Host }
    }

    /// Host memory that may be written.
    #[inline]
    pub fn of_bytes_mut(bytes: &mut [u8]) -> Region {
        let address = Address(bytes.as_mut_ptr().expose_provenance());
        Region { address, len_bytes: bytes.len(), memory: MemoryType::Host }
    }

    /// The part of this region that starts `offset_bytes` in and is `len_bytes` long.
    ///
    /// # Panics
    /// In debug builds, when the part does not lie inside the region.
    #[inline]
    pub fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Region {
        debug_assert!(
            offset_bytes + len_bytes <= self.len_bytes,
            "slice {offset_bytes}+{len_bytes} outside a region of {} bytes",
            self.len_bytes
        );
        Region {
            address: Address(self.address.0.wrapping_add(offset_bytes)),
            len_bytes,
            memory: self.memory,
        }
    }
}
