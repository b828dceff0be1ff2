//! The error that a front end maps to its own status.

use hetccl_core::{Collective, Rank, TransportError};

/// A collective that failed: which, where, and why.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A message, copy or reduction failed.
    #[error(
        "{collective} number {sequence} on communicator {context} (rank {rank} of {size}): {source}",
        collective = .collective.name()
    )]
    Step {
        /// The collective.
        collective: Collective,
        /// Its number in the communicator, from 0.
        sequence: u64,
        /// The communicator's context id.
        context: u32,
        /// This rank.
        rank: Rank,
        /// Ranks in this rank's group.
        size: u32,
        /// What went wrong.
        source: TransportError,
    },
    /// No algorithm can do this call.
    #[error("no algorithm can do {collective} on this communicator", collective = .collective.name())]
    NoAlgorithm {
        /// The collective.
        collective: Collective,
    },
    /// Scratch memory could not be had.
    #[error(
        "{collective} needs {bytes} bytes of scratch memory and there is no room for them",
        collective = .collective.name()
    )]
    OutOfMemory {
        /// The collective.
        collective: Collective,
        /// How much was asked for.
        bytes: usize,
    },
}

impl Error {
    /// The failed step's own error, where there is one.
    pub fn transport(&self) -> Option<&TransportError> {
        match self {
            Error::Step { source, .. } => Some(source),
            _ => None,
        }
    }
}
