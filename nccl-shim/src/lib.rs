//! hetccl behind the interface of NCCL and RCCL.
//!
//! ```text
//! exports/     the C functions, one table; compiled once more in each of the two shared objects beside this crate
//! api/         what they do: check, translate, queue
//! comm.rs      communicators and their handles
//! init.rs      making them: ranks meet, tell each other what they are, and start an engine
//! group.rs     what a thread has said between ncclGroupStart and ncclGroupEnd
//! graph.rs     calls on streams that record a graph; engine/replay.rs runs them at each launch
//! order.rs     words in pinned memory that streams write and wait for
//! engine/      one thread per communicator, which owns the runtime's process and runs tasks in order
//! mesh/        messages between ranks over sockets
//! delegate/    communicators whose calls go to the vendor's own library
//! ```
//!
//! A call that names a stream queues two memory operations there, "write ready" and "wait for done", and a task for the
//! communicator's engine, which starts when `ready` has been written and writes `done` at the end. So the stream is held
//! back, and the caller is not.

pub mod abi;
pub mod api;
mod comm;
pub mod delegate;
mod engine;
pub mod entry;
pub mod exports;
mod failure;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod graph;
mod group;
mod init;
mod log;
#[cfg(test)]
mod matrix;
mod meeting;
mod mesh;
mod operation;
mod order;
mod reducer;
mod settings;
mod weights;

pub use failure::Failure;

/// Which library a program has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `libnccl.so.2`: ranks of NVIDIA GPUs.
    Nccl,
    /// `librccl.so.1`: ranks of AMD GPUs.
    Rccl,
}

/// What this crate's own copy of the exports answers to; it is there for its table.
const LIBRARY: Library = Library::Nccl;
