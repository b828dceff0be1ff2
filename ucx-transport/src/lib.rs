//! Messages and remote memory over UCX.
//!
//! [`Library::load`] finds libucp at run time, so a host without UCX gets an [`Error`] and not a program that will not
//! start. A [`Fabric`] is a process's share of UCX: one context, one worker, an endpoint per peer talked to. A
//! [`Channel`] is one communicator's use of it, and a [`Port`], both together, is a [`Transport`](hetccl_core::Transport).
//!
//! The caller keeps a `Fabric` and its `Channel`s under one lock and drives [`Fabric::progress`]. Nothing here makes
//! threads or blocks, except calls that take a deadline and [`Transport::cancel`](hetccl_core::Transport::cancel),
//! which is bounded.
//!
//! Only UCX's API of version 1.13 is used; its field masks keep that compatible with later libraries.

mod channel;
mod context;
mod endpoint;
mod error;
mod fabric;
mod library;
mod liveness;
mod memory;
mod operation;
mod port;
mod sys;
mod worker;

pub use channel::{Channel, MAX_CONTEXT, MAX_GROUP_SIZE, Resolver};
pub use context::FabricParams;
pub use error::Error;
pub use fabric::{Fabric, MemoryId, RemoteKeyId};
pub use library::{LIBRARY_FOLDER_VARIABLE, Library};
pub use liveness::{ENCODED_LEN as PROCESS_BYTES, Process, parse_stat};
pub use port::Port;
