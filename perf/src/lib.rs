//! `hetccl perf`: what nccl-tests and OSU's benchmarks are to their libraries; and `hetccl tune`.
//!
//! ```text
//! options.rs     what the user asks for
//! call.rs        a collective, its sizes, what its result must be, its bandwidths
//! library/       those who do it: MPI through libmpi, or NCCL's interface through hetccl's library (or any other)
//! memory.rs      buffers: host, CUDA, ROCm, through the drivers' own functions
//! measure.rs     warm-up, check, rounds
//! report.rs      table, CSV, JSON; plot.rs: SVG
//! start.rs       ranks of its own, when nobody else has started them
//! tune/          `hetccl tune`: a job's links and memories, as a cluster file
//! ```
//!
//! Libraries and drivers are loaded at run time and called by their C interfaces, as a user's program does; nothing of hetccl's
//! inside is used, so the same program measures other libraries too.

mod call;
mod foreign;
mod library;
mod measure;
mod memory;
mod options;
mod plot;
mod report;
mod start;
mod tune;

use std::process::ExitCode;

use anyhow::Result;

pub use options::Args;
pub use tune::{Args as TuneArgs, tune};

/// The exit code when a result was wrong.
pub const WRONG_RESULT: u8 = 3;

/// Measures, as one of the ranks that somebody has started, or starts them.
///
/// # Errors
/// What could not be loaded, started or called.
pub fn run(args: &Args) -> Result<ExitCode> {
    let plan = options::Plan::new(args)?;
    match start::place(&plan)? {
        start::Place::Rank(rank) => measure::rank(&plan, rank),
        start::Place::Alone => start::ranks(&plan),
    }
}
