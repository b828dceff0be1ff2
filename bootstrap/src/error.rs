//! What can go wrong, in words that say where and what to try.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::handshake::RELEASE;
use crate::wire::VERSION;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a group could not be made or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 128 bytes that hetccl did not make.
    #[error(
        "this unique id was not made by hetccl ({reason}): the rank that made it runs another NCCL or RCCL library, or \
         its bytes were damaged on the way; every rank must run hetccl"
    )]
    NotAnId {
        /// What is wrong with the bytes.
        reason: &'static str,
    },
    /// Another version of the protocol.
    #[error(
        "{whose} has version {theirs} of the bootstrap protocol, this process has {VERSION}: install the same hetccl \
         everywhere"
    )]
    Version {
        /// Whose version it is.
        whose: String,
        /// Their version.
        theirs: u16,
    },
    /// Another release of hetccl.
    #[error(
        "{whose} has hetccl {theirs}, this process has {RELEASE}: install the same hetccl everywhere"
    )]
    Release {
        /// Whose release it is.
        whose: String,
        /// Their release.
        theirs: String,
    },
    /// A setting that can't be used.
    #[error("{name}={value}: {reason}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No address that others could connect to.
    #[error("no usable network interface: {reason} (interfaces here: {present})")]
    NoInterface {
        /// What was asked for.
        reason: String,
        /// What there is.
        present: String,
    },
    /// No port to listen on.
    #[error("can't listen on {address}: {reason}")]
    Listen {
        /// Where.
        address: String,
        /// The system's words.
        reason: String,
    },
    /// A process that no address leads to.
    #[error(
        "can't reach {whom}. Tried {}. Set NCCL_SOCKET_IFNAME on every rank to an interface whose network all hosts \
         share (interfaces here: {here}), and let TCP through between the hosts",
        list(tried)
    )]
    Unreachable {
        /// Who was to be reached.
        whom: String,
        /// Every address, and what became of it.
        tried: Vec<Attempt>,
        /// The interfaces of this host.
        here: String,
    },
    /// The group has failed: here, or on another rank that told this one.
    #[error("{0}")]
    Group(Failure),
    /// [`Bootstrap::abort`](crate::Bootstrap::abort) was called.
    #[error("the communicator was aborted")]
    Aborted,
    /// A call that makes no sense, such as a rank outside of the group.
    #[error("{0}")]
    WrongUse(String),
    /// The system refused something.
    #[error("{what}: {reason}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
}

/// What ended a group, as all its ranks are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The ranks that caused it: missing, gone, or wrong. May be empty.
    pub ranks: Vec<u32>,
    /// The rank that noticed, where it was a rank.
    pub noticed_by: Option<u32>,
    /// What happened, for people.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noticed_by {
            Some(rank) => write!(f, "{} (noticed by rank {rank})", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// One address that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where.
    pub address: SocketAddr,
    /// The interface there, where it is known.
    pub interface: String,
    /// The interface and address of this host that lead there, where there are any.
    pub via: Option<String>,
    /// What became of it.
    pub outcome: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if !self.interface.is_empty() {
            write!(f, " ({} there)", self.interface)?;
        }
        match &self.via {
            Some(via) => write!(f, " by {via}: {}", self.outcome),
            None => write!(f, ": {}", self.outcome),
        }
    }
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(Attempt::to_string).collect::<Vec<_>>().join("; ")
}

/// Ranks as people write them: `0, 3-5, 9`; the first 32 runs, then how many more ranks.
pub(crate) fn ranks_in_words(ranks: &[u32]) -> String {
    const MOST_RUNS: usize = 32;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<&[u32]> = sorted.chunk_by(|a, b| a + 1 == *b).collect();
    let mut words: Vec<String> = runs
        .iter()
        .take(MOST_RUNS)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    let more: usize = runs.iter().skip(MOST_RUNS).map(|run| run.len()).sum();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_as_runs() {
        assert_eq!(ranks_in_words(&[]), "");
        assert_eq!(ranks_in_words(&[7]), "7");
        assert_eq!(ranks_in_words(&[9, 0, 4, 3, 5, 5]), "0, 3-5, 9");
        let odd: Vec<u32> = (0..40).map(|n| 2 * n + 1).collect();
        assert!(ranks_in_words(&odd).ends_with("63, and 8 more"), "{}", ranks_in_words(&odd));
    }
}
