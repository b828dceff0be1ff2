//! What has come for one rank of this process: links that others opened to it, messages, and connections for its user.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Failure;
use crate::wire::Who;

/// Messages that wait to be received may take this much memory.
const MOST_WAITING_BYTES: usize = 256 << 20;
/// Links that nobody has asked for yet, such as those of a split that this rank is late for.
const MOST_WAITING_LINKS: usize = 4096;

/// Shared by a group, the groups split off it, and the thread that serves the port.
#[derive(Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inner {
    links: HashMap<u64, Vec<Arrived>>,
    streams: HashMap<u64, Vec<(u32, TcpStream)>>,
    messages: HashMap<(u64, u32, u64), VecDeque<Vec<u8>>>,
    waiting_bytes: usize,
    waiting_links: usize,
    failed: HashMap<u64, Failure>,
}

/// A link that a child opened.
pub(crate) struct Arrived {
    /// Which of the two trees of the group: 0 of those at one root, 1 of the roots' first.
    pub level: u8,
    /// The child's place in the tree.
    pub index: u32,
    pub who: Who,
    pub stream: TcpStream,
}

impl Mailbox {
    /// Stores a link of a group's tree; refused when the group has failed here.
    pub(crate) fn put_link(&self, context: u64, link: Arrived) -> Result<(), Failure> {
        let mut inner = self.lock();
        if let Some(failure) = inner.failed.get(&context) {
            return Err(failure.clone());
        }
        if inner.waiting_links >= MOST_WAITING_LINKS {
            return Err(refusal("too many links wait for this rank"));
        }
        inner.waiting_links += 1;
        inner.links.entry(context).or_default().push(link);
        self.arrived.notify_all();
        Ok(())
    }

    /// Takes the links that have come, after waiting for one, at most this long.
    pub(crate) fn take_links(&self, context: u64, at_most: Duration) -> Vec<Arrived> {
        let nothing_yet = |inner: &mut Inner| {
            !inner.links.contains_key(&context) && !inner.failed.contains_key(&context)
        };
        let waited = self.arrived.wait_timeout_while(self.lock(), at_most, nothing_yet);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        let links = inner.links.remove(&context).unwrap_or_default();
        inner.waiting_links -= links.len();
        links
    }

    /// Stores a connection for the user of a group; refused when the group has failed here.
    pub(crate) fn put_stream(
        &self,
        context: u64,
        from: u32,
        stream: TcpStream,
    ) -> Result<(), Failure> {
        let mut inner = self.lock();
        if let Some(failure) = inner.failed.get(&context) {
            return Err(failure.clone());
        }
        if inner.waiting_links >= MOST_WAITING_LINKS {
            return Err(refusal("too many connections wait for this rank"));
        }
        inner.waiting_links += 1;
        inner.streams.entry(context).or_default().push((from, stream));
        Ok(())
    }

    /// Takes the connections that have come for the user of a group.
    pub(crate) fn take_streams(&self, context: u64) -> Vec<(u32, TcpStream)> {
        let mut inner = self.lock();
        let streams = inner.streams.remove(&context).unwrap_or_default();
        inner.waiting_links -= streams.len();
        streams
    }

    pub(crate) fn put_message(
        &self,
        (context, from, tag): (u64, u32, u64),
        payload: Vec<u8>,
    ) -> Result<(), Failure> {
        let mut inner = self.lock();
        if let Some(failure) = inner.failed.get(&context) {
            return Err(failure.clone());
        }
        let waiting_bytes = inner.waiting_bytes + payload.len();
        if waiting_bytes > MOST_WAITING_BYTES {
            return Err(refusal("too many messages wait to be received by this rank"));
        }
        inner.waiting_bytes = waiting_bytes;
        inner.messages.entry((context, from, tag)).or_default().push_back(payload);
        self.arrived.notify_all();
        Ok(())
    }

    pub(crate) fn take_message(&self, key: (u64, u32, u64)) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let queue = inner.messages.get_mut(&key)?;
        let payload = queue.pop_front()?;
        if queue.is_empty() {
            inner.messages.remove(&key);
        }
        inner.waiting_bytes -= payload.len();
        Some(payload)
    }

    /// From now on whoever comes for this group is told why it failed.
    pub(crate) fn fail(&self, context: u64, failure: Failure) {
        let mut inner = self.lock();
        inner.failed.entry(context).or_insert(failure);
        let links = inner.links.remove(&context).map_or(0, |links| links.len());
        let streams = inner.streams.remove(&context).map_or(0, |streams| streams.len());
        inner.waiting_links -= links + streams;
        self.arrived.notify_all();
    }

    /// Forgets everything about a group that is over.
    pub(crate) fn forget(&self, context: u64) {
        let mut inner = self.lock();
        inner.failed.remove(&context);
        let streams = inner.streams.remove(&context).map_or(0, |streams| streams.len());
        inner.waiting_links -= streams;
        let gone: Vec<_> = inner.messages.keys().filter(|key| key.0 == context).copied().collect();
        for key in gone {
            let queue = inner.messages.remove(&key).unwrap_or_default();
            inner.waiting_bytes -= queue.iter().map(Vec::len).sum::<usize>();
        }
    }

    /// Waits for a message, at most this long.
    pub(crate) fn wait_for_message(
        &self,
        key: (u64, u32, u64),
        at_most: Duration,
    ) -> Option<Vec<u8>> {
        let here = |inner: &mut Inner| !inner.messages.contains_key(&key);
        let waited = self.arrived.wait_timeout_while(self.lock(), at_most, here);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.take_message(key)
    }

    /// Wakes whoever waits, to look whether it still should.
    pub(crate) fn wake(&self) {
        let _inner = self.lock();
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(reason: &str) -> Failure {
    Failure { ranks: Vec::new(), noticed_by: None, reason: reason.into() }
}
