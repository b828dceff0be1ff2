//! Runs the schedules of all ranks symbolically and says whether the collective did what it promises.
//!
//! Every element of every buffer carries where it came from: one element of one rank's contribution, or the tree of
//! reductions that made it. [`check`] executes all ranks' steps as their dependencies and messages allow and then
//! compares each output element with what MPI demands. It does not trust the [`Builder`](crate::Builder): accesses
//! outside buffers, two steps that touch the same memory without an order, unmatched messages, deadlock, a write to
//! the input, a read of memory that nobody wrote, contributions twice, missing or out of order, and an allreduce whose
//! ranks add up differently are all [`Violation`]s.
//!
//! [`cases`] makes the calls of all ranks for a collective, size and variant.

mod barrier;
pub mod cases;
mod execute;
mod expected;
mod group;
#[cfg(test)]
mod mutants;
mod races;
mod value;

use std::fmt;

pub use execute::process_of;
pub use expected::{Wanted, sizes, wanted};

use crate::algorithms::Algorithm;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// What a correct run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps of all ranks.
    pub steps: usize,
    /// Messages of all ranks.
    pub messages: usize,
    /// Elements of scratch memory on the rank that needs most.
    pub scratch: usize,
}

/// What is wrong with a set of schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The algorithm's name.
    pub algorithm: String,
    /// The call on the rank where it shows.
    pub call: Box<Call>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by {}: {}\n  on {:?}",
            self.call.collective.name(),
            self.algorithm,
            self.what,
            self.call
        )
    }
}

impl std::error::Error for Violation {}

/// Scratch memory may be this many times the elements that a rank's buffers have, and a few more.
const SCRATCH_FACTOR: usize = 5;
const SCRATCH_EXTRA: usize = 64;

/// Builds the schedules of all ranks and checks them together. On inter-communicators `calls` holds the first group's
/// ranks and then the second's.
///
/// # Errors
/// The first violation found.
pub fn check(algorithm: &Algorithm, calls: &[Call]) -> Result<Report, Violation> {
    let schedules: Vec<Schedule> = calls.iter().map(|call| (algorithm.build)(call)).collect();
    check_schedules(algorithm.name, calls, &schedules)
}

/// Checks schedules that are there already.
///
/// # Errors
/// The first violation found.
pub fn check_schedules(
    name: &str,
    calls: &[Call],
    schedules: &[Schedule],
) -> Result<Report, Violation> {
    let violation = |process: usize, what: String| Violation {
        algorithm: name.to_owned(),
        call: Box::new(calls[process].clone()),
        what,
    };
    let mut report = Report::default();
    for (process, (call, schedule)) in calls.iter().zip(schedules).enumerate() {
        bounded_scratch(call, schedule, calls).map_err(|what| violation(process, what))?;
        report.steps += schedule.steps().len();
        report.scratch = report.scratch.max(schedule.scratch_total());
    }
    for process in races::sample(calls.len()) {
        races::check(&schedules[process]).map_err(|what| violation(process, what))?;
    }
    let run = execute::run(calls, schedules).map_err(|(process, what)| violation(process, what))?;
    report.messages = run.messages;
    if calls[0].collective == Collective::Barrier {
        barrier::check(calls, schedules).map_err(|(process, what)| violation(process, what))?;
    }
    expected::compare(calls, schedules, &run)
        .map_err(|(process, what)| violation(process, what))?;
    Ok(report)
}

fn bounded_scratch(call: &Call, schedule: &Schedule, calls: &[Call]) -> Result<(), String> {
    let (input, output) = expected::sizes(call);
    // Leaders of inter-communicators hold what the other group's ranks have.
    let largest = calls.iter().map(|c| expected::sizes(c).0.max(expected::sizes(c).1)).max();
    let bound = SCRATCH_FACTOR * (input + output).max(largest.unwrap_or(0)) + SCRATCH_EXTRA;
    let total = schedule.scratch_total();
    if total > bound {
        return Err(format!("{total} elements of scratch memory, more than {bound}"));
    }
    Ok(())
}
