//! Schedules on a described machine, in virtual time.
//!
//! [`Program`] holds the schedules of all ranks in a compact form: who waits for whom, and bytes instead of places.
//! [`run`] plays them by discrete events on the links of a [`Topology`](hetccl_core::topology::Topology).
//!
//! What is in the model:
//! - A message takes a fixed time of its sender and of its receiver, one message at a time; messages above a limit wait until
//!   both sides are ready, and ask and answer first (two latencies).
//! - Every link on its way - PCIe, NVLink or xGMI, network cards, host memory - carries one message at a time in each direction, in
//!   the order in which they come; a message enters the next link when its first byte has entered the last one, and is there when the
//!   slowest has passed it all.
//! - Copies and reductions share the device's memory, and begin after a launch.
//!
//! What is not: contention between nodes, lost packets, other jobs, noise.

mod machine;
mod program;
mod run;

pub use program::Program;
pub use run::{Timing, run};

/// Picoseconds, the unit of virtual time.
pub type Picoseconds = u64;

/// Time for `bytes` at a rate in MB/s.
pub(crate) fn transfer_ps(bytes: u64, mb_s: u32) -> Picoseconds {
    bytes * 1_000_000 / u64::from(mb_s.max(1))
}
