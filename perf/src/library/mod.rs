//! Those who do the collectives.

pub(crate) mod mpi;
pub(crate) mod nccl;

use anyhow::Result;

use crate::call::Call;
use crate::memory::Buffer;

/// A library with all ranks in it.
pub(crate) trait Library {
    /// What is measured, in words.
    fn describe(&self) -> String;
    /// Does a call, or queues it.
    ///
    /// # Errors
    /// What the library says, or that it has no such collective.
    fn call(&mut self, call: &Call, input: &Buffer, output: &Buffer) -> Result<()>;
    /// Waits for what was queued.
    fn wait(&mut self) -> Result<()>;
    /// The largest of all ranks' numbers. No rank returns before all have called.
    fn largest(&mut self, number: f64) -> Result<f64>;
    /// Says good-bye to the others.
    fn finish(&mut self) -> Result<()>;
}
