//! Everything a user can set, in one table: front ends register, document and parse from it.

use std::fmt;

use hetccl_core::{Choices, Collective};

/// A setting that is one of a few words. The first is the default.
macro_rules! words {
    (
        $(#[$documentation:meta])*
        $name:ident { $($(#[$meaning:meta])* $variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$meaning])* $variant,)+
        }

        impl $name {
            /// The words that a user may say.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The choices, in the order of their words.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
        }

        impl Default for $name {
            fn default() -> Self {
                $name::ALL[0]
            }
        }
    };
}

words! {
    /// Which wire the user asked for.
    TransportChoice {
        /// UCX where every rank can use it, otherwise the front end's own messages.
        Auto = "auto",
        /// UCX, or an error.
        Ucx = "ucx",
        /// The front end's own messages.
        Pml = "pml",
    }
}

words! {
    /// Whether GPUs are looked for.
    GpuChoice {
        /// Those whose drivers are there.
        Auto = "auto",
        /// None: every buffer is host memory.
        None = "none",
    }
}

words! {
    /// How device buffers reach each other.
    GpuPath {
        /// The fastest that the two ends have.
        Auto = "auto",
        /// As UCX moves them, where it reaches every rank's device memory.
        Ucx = "ucx",
        /// Through pinned host memory.
        Staging = "staging",
    }
}

words! {
    /// Whether ranks of one node share memory for collectives, and how they get it.
    SharedMemory {
        /// An anonymous file, or a file in `/dev/shm` where that can't be.
        Auto = "auto",
        /// An anonymous file, or none.
        Anonymous = "anonymous",
        /// A file in `/dev/shm`, or none.
        File = "file",
        /// None: all messages go over the wire.
        Off = "off",
    }
}

words! {
    /// Whether collectives go by the groups of ranks with one vendor's devices.
    HierarchyChoice {
        /// Where a communicator has ranks of more than one vendor, and a model of the cost says that it pays.
        Auto = "auto",
        /// Wherever such a schedule can do the call.
        On = "on",
        /// Never.
        Off = "off",
    }
}

words! {
    /// Whether the vendors' libraries do what collectives of mixed communicators do inside their groups.
    GroupLibraryChoice {
        /// Where they can, and a model of the cost says that it pays.
        Auto = "auto",
        /// Wherever they can.
        On = "on",
        /// Never.
        Off = "off",
    }
}

/// The settings of a process; all ranks of a job must have the same.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which wire.
    pub transport: TransportChoice,
    /// Memory that ranks of one node share.
    pub shared_memory: SharedMemory,
    /// Most bytes of each rank's ring in a shared segment.
    pub shared_ring_bytes: usize,
    /// Most bytes of unused shared segments that are kept.
    pub shared_keep_bytes: usize,
    /// Whether GPUs are looked for.
    pub gpus: GpuChoice,
    /// How device buffers reach each other.
    pub gpu_path: GpuPath,
    /// Whether collectives go by vendor groups.
    pub hierarchy: HierarchyChoice,
    /// Whether the vendors' libraries work inside their groups. For front ends that load them.
    pub group_library: GroupLibraryChoice,
    /// Operations with this many bytes of device buffers and more stay in device memory.
    pub gpu_resident_bytes: usize,
    /// Bytes of messages that begin with a header, where ranks may have device memory.
    pub gpu_long_bytes: usize,
    /// Bytes per piece of a message that goes through pinned host memory.
    pub gpu_staging_bytes: usize,
    /// Bytes of a slot of the pinned memory that ranks of one host share for a message; 0: none.
    pub gpu_ring_bytes: usize,
    /// Bytes per chunk of pipelined algorithms where ranks may have device memory.
    pub gpu_chunk_bytes: usize,
    /// Demanded algorithms.
    pub choices: Choices,
    /// Bytes per chunk of pipelined algorithms.
    pub chunk_bytes: usize,
    /// Most unused scratch memory that is kept, in bytes.
    pub scratch_keep_bytes: usize,
    /// Most memory for schedules that were built before, in bytes.
    pub schedule_cache_bytes: usize,
    /// Most unused pinned host memory that is kept per device, in bytes.
    pub pinned_keep_bytes: usize,
    /// How often a blocking call polls before it lets the front end's own progress run.
    pub polls_before_progress: usize,
    /// Seconds of waiting before late ranks are named; 0: never.
    pub stall_seconds: usize,
    /// Seconds that a peer's process may be stopped; 0: for ever.
    pub peer_timeout_seconds: usize,
    /// Seconds of waiting in one collective before it fails; 0: for ever.
    pub wait_limit_seconds: usize,
    /// Whether ranks compare what they call; 0: no.
    pub check_calls: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            transport: TransportChoice::Auto,
            shared_memory: SharedMemory::Auto,
            shared_ring_bytes: 256 << 10,
            shared_keep_bytes: 16 << 20,
            gpus: GpuChoice::Auto,
            gpu_path: GpuPath::Auto,
            hierarchy: HierarchyChoice::Auto,
            group_library: GroupLibraryChoice::Auto,
            gpu_resident_bytes: 256 << 10,
            gpu_long_bytes: 64 << 10,
            gpu_staging_bytes: 512 << 10,
            gpu_ring_bytes: 4 << 20,
            gpu_chunk_bytes: 16 << 20,
            choices: Choices::default(),
            chunk_bytes: 128 << 10,
            scratch_keep_bytes: 64 << 20,
            schedule_cache_bytes: 4 << 20,
            pinned_keep_bytes: 256 << 20,
            polls_before_progress: 64,
            stall_seconds: 30,
            peer_timeout_seconds: 60,
            wait_limit_seconds: 0,
            check_calls: 1,
        }
    }
}

/// A setting that is one of a few words, as front ends register it. The `<collective>_algorithm` settings are not here:
/// [`hetccl_core::algorithms::of`] has their words.
#[derive(Clone, Copy, Debug)]
pub struct WordSetting {
    /// The name, without a front end's prefix.
    pub name: &'static str,
    /// What it does, and what each word means.
    pub help: &'static str,
    /// Open MPI's level of it, 1 (for everybody) to 9.
    pub level: i32,
    /// The words; the first is the default.
    pub words: &'static [&'static str],
    /// Puts the word of that number there.
    pub set: fn(&mut Settings, usize),
}

/// The word settings.
pub const WORD_SETTINGS: &[WordSetting] = &[
    WordSetting {
        name: "transport",
        help: "What carries messages between ranks. auto: UCX where every rank can use it, otherwise Open MPI's \
               own point-to-point layer. ucx: UCX, or MPI_Init fails and says why. pml: Open MPI's point-to-point \
               layer",
        level: 2,
        words: TransportChoice::NAMES,
        set: |s, i| s.transport = TransportChoice::ALL[i],
    },
    WordSetting {
        name: "shared_memory",
        help: "Whether collectives of host buffers between ranks of one node go through memory that they share. \
               auto: an anonymous file, or one in /dev/shm where that is not allowed, or the wire where neither can be \
               had. anonymous, file: only that, or the wire. off: the wire. A collective whose algorithm is demanded \
               uses the wire",
        level: 2,
        words: SharedMemory::NAMES,
        set: |s, i| s.shared_memory = SharedMemory::ALL[i],
    },
    WordSetting {
        name: "gpus",
        help: "Whether buffers may be GPU memory. auto: GPU drivers are loaded where they are installed. none: they \
               are not, and every buffer must be host memory",
        level: 2,
        words: GpuChoice::NAMES,
        set: |s, i| s.gpus = GpuChoice::ALL[i],
    },
    WordSetting {
        name: "gpu_path",
        help: "How large device buffers reach each other. auto: directly, where both are on one host and of one \
               vendor and the driver allows it, otherwise by UCX where it and a NIC reach every rank's device memory, \
               otherwise through pinned host memory. ucx: by UCX where it reaches every rank's device memory, NIC or \
               not. staging: through pinned host memory",
        level: 3,
        words: GpuPath::NAMES,
        set: |s, i| s.gpu_path = GpuPath::ALL[i],
    },
    WordSetting {
        name: "hierarchy",
        help: "Whether collectives go by the groups of ranks that work on one vendor's devices: inside each group first \
               and last, between groups once. A process belongs to the vendor whose driver has a device for it (the \
               first of CUDA, ROCm, Level Zero), or to the host. auto: in communicators with several vendors, where a \
               model of the cost says that it pays. on: wherever such a schedule can do the call, also by node. off: \
               never",
        level: 2,
        words: HierarchyChoice::NAMES,
        set: |s, i| s.hierarchy = HierarchyChoice::ALL[i],
    },
];

/// The help of `priority`, which front ends keep themselves. Default: 0.
pub const PRIORITY_HELP: &str = "Priority of hetccl among the coll components. 0: take part only when named in --mca coll, \
    and then before the others. A positive value competes with the other components as usual; a negative one never takes \
    part";

/// The help of `verbose`, which front ends keep themselves. Default: 0.
pub const VERBOSE_HELP: &str = "What hetccl tells on stderr. 0: nothing but errors. 1: which wire carries the messages and \
    why, once per job. 2: also the algorithm and wire of each kind of call, at its first use on rank 0 of the communicator";

/// The help of a collective's `<collective>_algorithm`, and its words with `auto` first.
pub fn algorithm_setting(collective: Collective) -> (String, Vec<&'static str>) {
    let mut words = vec!["auto"];
    let mut help = format!(
        "Algorithm of {} on intra-communicators. auto: chosen by number of ranks and bytes",
        collective.name()
    );
    let intra = hetccl_core::algorithms::of(collective)
        .filter(|a| a.scope == hetccl_core::algorithms::Scope::Intra);
    for algorithm in intra {
        words.push(algorithm.name);
        help.push_str(&format!(". {}: {}", algorithm.name, algorithm.summary));
    }
    (help, words)
}

/// A numeric setting as front ends register it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name, without a front end's prefix.
    pub name: &'static str,
    /// What it does, its unit and its limits.
    pub help: &'static str,
    /// Smallest value that makes sense.
    pub min: usize,
    /// Where it lives.
    pub get: fn(&Settings) -> usize,
    /// Puts a value there.
    pub set: fn(&mut Settings, usize),
}

/// The numeric settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "chunk_bytes",
        help: "Bytes per chunk of pipelined algorithms (pipelined_chain, ring, linear scan), at least 256; \
               larger chunks mean fewer messages, smaller ones more overlap",
        min: 256,
        get: |s| s.chunk_bytes,
        set: |s, v| s.chunk_bytes = v,
    },
    Setting {
        name: "shared_ring_bytes",
        help: "Most bytes of each rank's ring in the memory that the ranks of a communicator inside one node share, at \
               least 32768; a segment has 2 MiB of rings and 64 KiB a rank at most. Messages that fit a ring's eighth go \
               in one piece. 262144 is what two cores' second-level caches hold together",
        min: 32 << 10,
        get: |s| s.shared_ring_bytes,
        set: |s, v| s.shared_ring_bytes = v,
    },
    Setting {
        name: "shared_keep_bytes",
        help: "Most bytes of shared segments of freed communicators that a process keeps for later communicators of the \
               same ranks; 0 gives all of them back at once",
        min: 0,
        get: |s| s.shared_keep_bytes,
        set: |s, v| s.shared_keep_bytes = v,
    },
    Setting {
        name: "scratch_keep_bytes",
        help: "Most bytes of unused temporary memory that a process keeps for later collectives; 0 gives \
               all of it back at once",
        min: 0,
        get: |s| s.scratch_keep_bytes,
        set: |s, v| s.scratch_keep_bytes = v,
    },
    Setting {
        name: "schedule_cache_bytes",
        help: "Most bytes of schedules that a process keeps so that a repeated call need not build its \
               schedule again; 0 builds every schedule anew",
        min: 0,
        get: |s| s.schedule_cache_bytes,
        set: |s, v| s.schedule_cache_bytes = v,
    },
    Setting {
        name: "gpu_resident_bytes",
        help: "Collectives with at least this many bytes of device buffers (input and output together) run on the \
               device; smaller ones run on copies in pinned host memory",
        min: 0,
        get: |s| s.gpu_resident_bytes,
        set: |s, v| s.gpu_resident_bytes = v,
    },
    Setting {
        name: "gpu_long_bytes",
        help: "In jobs with GPUs, messages of at least this many bytes, at least 1, begin with a header that lets \
               the receiver read the sender's device memory, and are cut into pieces where it can't",
        min: 1,
        get: |s| s.gpu_long_bytes,
        set: |s, v| s.gpu_long_bytes = v,
    },
    Setting {
        name: "gpu_staging_bytes",
        help: "Bytes per piece of a long message that goes through pinned host memory, at least 4096",
        min: 4096,
        get: |s| s.gpu_staging_bytes,
        set: |s, v| s.gpu_staging_bytes = v,
    },
    Setting {
        name: "gpu_ring_bytes",
        help: "Bytes per piece of a long message from device memory to another rank of the host that can't read it: four \
               pieces at a time pass through pinned memory that both ranks share, without a copy by the CPU; 0 sends \
               such messages as those between hosts",
        min: 0,
        get: |s| s.gpu_ring_bytes,
        set: |s, v| s.gpu_ring_bytes = v,
    },
    Setting {
        name: "gpu_chunk_bytes",
        help: "Bytes per chunk of pipelined algorithms in jobs with GPUs, at least 4096; takes the place of \
               chunk_bytes there",
        min: 4096,
        get: |s| s.gpu_chunk_bytes,
        set: |s, v| s.gpu_chunk_bytes = v,
    },
    Setting {
        name: "pinned_keep_bytes",
        help: "Most bytes of unused pinned host memory, and as many of device memory, that a process keeps per GPU for \
               later collectives on device buffers; 0 gives all of it back at once, which is slow",
        min: 0,
        get: |s| s.pinned_keep_bytes,
        set: |s, v| s.pinned_keep_bytes = v,
    },
    Setting {
        name: "polls_before_progress",
        help: "How often a blocking collective looks for its own messages before it lets the MPI library's \
               other work progress, at least 1",
        min: 1,
        get: |s| s.polls_before_progress,
        set: |s, v| s.polls_before_progress = v,
    },
    Setting {
        name: "stall_seconds",
        help: "Seconds that a collective waits before stderr names the ranks that have not arrived, and where they are; \
               then again after twice the time; 0: never. HETCCL_STALL_SECONDS in the environment gives the default",
        min: 0,
        get: |s| s.stall_seconds,
        set: |s, v| s.stall_seconds = v,
    },
    Setting {
        name: "peer_timeout_seconds",
        help: "Seconds that the process of another rank of this host may be stopped (SIGSTOP) before a collective that \
               waits fails; 0: for ever. A process that has ended fails it at once, one that is late never does",
        min: 0,
        get: |s| s.peer_timeout_seconds,
        set: |s, v| s.peer_timeout_seconds = v,
    },
    Setting {
        name: "wait_limit_seconds",
        help: "Seconds that a collective may wait before it fails, whatever the reason; 0: for ever. The only way to \
               notice a silent rank of another host where messages go over the PML",
        min: 0,
        get: |s| s.wait_limit_seconds,
        set: |s, v| s.wait_limit_seconds = v,
    },
    Setting {
        name: "check_calls",
        help: "1: ranks of one host that call different collectives, or with different operation, datatype, root or count, \
               get an error that names both calls. 0: not compared",
        min: 0,
        get: |s| s.check_calls,
        set: |s, v| s.check_calls = v,
    },
];

/// A setting with a value that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SettingError {
    /// The setting's name.
    pub name: String,
    /// The refused value.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?} is not possible; possible: {}", self.name, self.value, self.expected)
    }
}

impl Settings {
    /// The chunk of pipelined algorithms in elements of `element_bytes`.
    #[inline]
    pub fn chunk(&self, element_bytes: usize) -> usize {
        (self.chunk_bytes / element_bytes.max(1)).max(1)
    }

    /// Whether collectives may go by vendor groups.
    pub fn may_group(&self) -> bool {
        self.hierarchy != HierarchyChoice::Off
    }

    /// Whether the user has demanded that some collectives go by groups, however the ranks are placed.
    pub fn demands_groups(&self) -> bool {
        self.hierarchy == HierarchyChoice::On || self.choices.needs_groups()
    }

    /// Whether the user has demanded how a collective is done, so that shared memory's own ways are left alone.
    #[inline]
    pub fn is_demanded(&self, collective: Collective) -> bool {
        self.hierarchy == HierarchyChoice::On || self.choices.is_forced(collective)
    }

    /// Sets a numeric setting by name.
    ///
    /// # Errors
    /// An unknown name, or a value below its minimum.
    pub fn set_number(&mut self, name: &str, value: i64) -> Result<(), SettingError> {
        let error = |expected: String| SettingError {
            name: name.into(),
            value: value.to_string(),
            expected,
        };
        let setting = SETTINGS.iter().find(|s| s.name == name).ok_or_else(|| {
            error(format!(
                "one of the settings {}",
                SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
            ))
        })?;
        match usize::try_from(value) {
            Ok(value) if value >= setting.min => (setting.set)(self, value),
            _ => return Err(error(format!("{} or more", setting.min))),
        }
        Ok(())
    }

    /// Demands an algorithm by name for a collective (`auto` leaves it to the table).
    ///
    /// # Errors
    /// An unknown name; the error lists the known ones.
    pub fn set_algorithm(
        &mut self,
        collective: Collective,
        algorithm: &str,
    ) -> Result<(), SettingError> {
        self.choices.force(collective, algorithm).map_err(|known| SettingError {
            name: format!("{}_algorithm", collective.name()),
            value: algorithm.into(),
            expected: format!("auto, {}", known.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_refused_with_the_right_ones() {
        let mut settings = Settings::default();
        let error = settings.set_algorithm(Collective::Allreduce, "magic").unwrap_err();
        assert!(error.to_string().contains("recursive_doubling"), "{error}");
        assert!(
            settings.set_number("chunk_bytes", 1).unwrap_err().to_string().contains("256 or more")
        );
        assert!(settings.set_number("chunk_bytes", -1).is_err());
        assert!(settings.set_number("nonsense", 1).unwrap_err().expected.contains("chunk_bytes"));
        settings.set_number("chunk_bytes", 4096).unwrap();
        assert_eq!(settings.chunk_bytes, 4096);
    }
}
