//! Whether a peer on this host still lives, found out without UCX.
//!
//! UCX looks after endpoints, but not while a connection is being made: a peer on this host that dies then is waited
//! for without end. So an address says which process it belongs to, and a fabric looks now and then whether the
//! processes of its own host are there.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};

/// Bytes of an encoded [`Process`].
pub const ENCODED_LEN: usize = 20;

/// A process, told from all others of its host and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Which boot of which host, and which process namespace; 0 when unknown.
    host: u64,
    pid: u32,
    /// When it started, in clock ticks after boot.
    start_ticks: u64,
}

impl Process {
    /// This process; nobody where there is no `/proc`.
    pub fn this() -> Process {
        let known = || {
            let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
            let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
            let pid = std::process::id();
            let mut hasher = DefaultHasher::new();
            (boot, namespace).hash(&mut hasher);
            Some(Process { host: hasher.finish().max(1), pid, start_ticks: start_ticks(pid)? })
        };
        known().unwrap_or_default()
    }

    /// As bytes, for a message.
    pub fn encode(self) -> [u8; ENCODED_LEN] {
        let mut bytes = [0; ENCODED_LEN];
        bytes[..8].copy_from_slice(&self.host.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..].copy_from_slice(&self.start_ticks.to_le_bytes());
        bytes
    }

    /// Takes an encoded process off the front; `None` when there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<(Process, &[u8])> {
        let (host, rest) = bytes.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (start_ticks, rest) = rest.split_first_chunk()?;
        let process = Process {
            host: u64::from_le_bytes(*host),
            pid: u32::from_le_bytes(*pid),
            start_ticks: u64::from_le_bytes(*start_ticks),
        };
        Some((process, rest))
    }

    /// Whether the other process can be seen from this one.
    pub fn sees(&self, other: &Process) -> bool {
        self.host != 0 && self.host == other.host
    }

    /// Whether a process that can be seen still runs; one that has ended but not been waited for does not.
    pub fn is_alive(&self) -> bool {
        self.state().is_some()
    }

    /// The state of a process that can be seen and still runs, as `/proc` spells it: `T` when it is stopped.
    pub fn state(&self) -> Option<char> {
        let (state, start) = state_and_start(self.pid)?;
        (start == self.start_ticks).then_some(state)
    }

    /// Its number; 0 when it is not known.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// When a running process of this namespace started.
fn start_ticks(pid: u32) -> Option<u64> {
    state_and_start(pid).map(|(_, start)| start)
}

fn state_and_start(pid: u32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The state and the time of start, in clock ticks, by a process's file `stat`; `None` for one that has ended.
pub fn parse_stat(stat: &str) -> Option<(char, u64)> {
    // The name, in parentheses, may hold anything; after it come the state (field 3) and numbers.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, 'Z' | 'X' | 'x')).then_some((state, start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_survives_its_encoding() {
        let this = Process::this();
        let mut bytes = this.encode().to_vec();
        bytes.extend([1, 2, 3]);
        assert_eq!(Process::decode(&bytes), Some((this, &[1, 2, 3][..])));
        assert_eq!(Process::decode(&bytes[..ENCODED_LEN - 1]), None);
    }

    #[test]
    fn the_living_are_told_from_the_dead_and_from_strangers() {
        let this = Process::this();
        assert!(this.is_alive() && this.sees(&this));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let other =
            Process { pid: child.id(), start_ticks: start_ticks(child.id()).unwrap(), ..this };
        assert!(other.is_alive());
        assert!(!Process { start_ticks: other.start_ticks + 1, ..other }.is_alive());
        child.kill().unwrap();
        // The signal takes a moment; the child is not waited for.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while other.is_alive() {
            assert!(std::time::Instant::now() < end, "a killed child counts as alive");
        }
        child.wait().unwrap();
        assert!(!other.is_alive());
        assert!(!this.sees(&Process { host: this.host ^ 1, ..this }));
        assert!(!Process::default().sees(&Process::default()));
    }
}
