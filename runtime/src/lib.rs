//! What the front ends build on: a [`Process`] that owns the wires and runs collectives, and a
//! [`Communicator`] per group of ranks.
//!
//! A front end translates its call into a [`Request`], hands it to [`Process::start`], and polls the
//! [`Operation`] until it has finished; blocking, nonblocking and persistent collectives differ only in who polls.
//! Nothing of that blocks, makes threads or reads the clock; the front end holds a `Process` under one lock. Blocking
//! collectives of ranks of one node go through [`shared`] memory instead, without the lock.

mod communicator;
mod devices;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod host;
mod library;
mod messages;
mod one_device;
mod probe;
mod process;
pub mod rdma;
mod resident;
mod schedules;
mod scratch;
mod settings;
pub mod shared;
mod staging;
mod variables;
mod waiting;
pub mod watch;

pub use communicator::{Communicator, Mode, Wire};
pub use error::Error;
pub use hetccl_core as core;
pub use hetccl_gpu as gpu;
pub use hetccl_ucx as ucx;
pub use host::ExternalReducer;
pub use library::GroupLibrary;
pub use probe::{Ucx, libraries_in_use, ucx, ucx_version};
pub use process::{Direction, MessageCounts, Operation, Process, Request};
pub use rdma::Rdma;
pub use settings::{
    GpuChoice, GpuPath, GroupLibraryChoice, HierarchyChoice, PRIORITY_HELP, SETTINGS, Setting,
    SettingError, Settings, SharedMemory, TransportChoice, VERBOSE_HELP, WORD_SETTINGS,
    WordSetting, algorithm_setting,
};
pub use variables::{VARIABLES, Variable};
