//! The pure heart of hetccl: what a collective is, the schedules that carry it out, and the engine
//! that runs them.
//!
//! An *algorithm* is a function from a [`Call`] (rank, size, count, layout, root) to this rank's
//! [`Schedule`]: sends, receives, copies and reductions over parts of named buffers, with their
//! dependencies. The [engine](Run) runs a schedule on any [`Transport`] and [`Device`]; the
//! [verifier](verify) runs the schedules of all ranks symbolically. Nothing here knows a clock, an
//! environment, a thread or a foreign function.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod balance;
mod builder;
mod call;
pub mod cost;
mod engine;
mod op;
mod pool;
mod schedule;
mod select;
pub mod topology;
mod transport;
mod types;
pub mod verify;

pub use builder::Builder;
pub use call::{Block, Call, Collective, Group, Layout, Neighbours, Root};
pub use engine::{Binding, Run};
pub use op::{Datatype, Reduction, ReductionOp};
pub use pool::Pool;
pub use schedule::{Buffer, GroupCollective, Schedule, Span, Step, StepId};
pub use select::{Choices, payload_bytes, select};
pub use transport::{Device, GroupCall, Handle, MessageTag, Posted, Transport, TransportError};
pub use types::{Address, MemoryType, Rank, Region};
