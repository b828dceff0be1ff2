//! One connection: frames out, frames in, matched with what is asked for.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;

use hetccl_core::{MessageTag, Rank, Region, TransportError};
use slab::Slab;

use super::State;

const HEADER_BYTES: usize = 16;
/// Read at a time.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct Outgoing {
    header: [u8; HEADER_BYTES],
    body: Body,
    sent: usize,
    handle: Option<usize>,
}

/// Bytes to send.
#[derive(Debug)]
enum Body {
    Region(Region),
    /// Of a cancelled send that had begun: its memory is the caller's again.
    Kept(Vec<u8>),
}

/// Where an arriving message goes.
#[derive(Debug)]
enum Target {
    Posted(Region, usize),
    Kept(Vec<u8>),
    /// Nobody wants it any more.
    Dropped,
}

#[derive(Debug)]
struct Incoming {
    tag: MessageTag,
    len: usize,
    got: usize,
    target: Target,
}

/// Another rank.
#[derive(Debug)]
pub(super) struct Peer {
    stream: Option<TcpStream>,
    dead: Option<String>,
    outgoing: VecDeque<Outgoing>,
    header: Vec<u8>,
    incoming: Option<Incoming>,
    posted: HashMap<MessageTag, VecDeque<(Region, usize)>>,
    early: HashMap<MessageTag, VecDeque<Vec<u8>>>,
}

impl Peer {
    pub(super) fn new() -> Peer {
        Peer {
            stream: None,
            dead: None,
            outgoing: VecDeque::new(),
            header: Vec::new(),
            incoming: None,
            posted: HashMap::new(),
            early: HashMap::new(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some() || self.dead.is_some()
    }

    pub(super) fn needs_connection(&self) -> bool {
        !self.is_connected()
    }

    pub(super) fn connected(&mut self, stream: TcpStream) {
        self.stream = Some(stream);
    }

    pub(super) fn send(
        &mut self,
        rank: usize,
        tag: MessageTag,
        from: Region,
        handle: usize,
        states: &mut Slab<State>,
    ) {
        if let Some(error) = self.failure(rank) {
            states[handle] = State::Failed(error);
            return;
        }
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&(from.len_bytes as u64).to_le_bytes());
        header[8..10].copy_from_slice(&tag.sequence.to_le_bytes());
        header[10..12].copy_from_slice(&tag.step.to_le_bytes());
        self.outgoing.push_back(Outgoing {
            header,
            body: Body::Region(from),
            sent: 0,
            handle: Some(handle),
        });
        if self.outgoing.len() == 1
            && let Err(error) = self.flush(states)
        {
            self.die(rank, &error, states);
        }
    }

    pub(super) fn recv(
        &mut self,
        rank: usize,
        tag: MessageTag,
        into: Region,
        handle: usize,
        states: &mut Slab<State>,
    ) {
        if let Some(queue) = self.early.get_mut(&tag) {
            let message = queue.pop_front();
            if queue.is_empty() {
                self.early.remove(&tag);
            }
            if let Some(message) = message {
                states[handle] = fitting(rank, message.len(), into.len_bytes);
                if matches!(states[handle], State::Finished) {
                    write(into, 0, &message);
                }
                return;
            }
        }
        // A kept message of this tag that is still arriving comes before.
        if let Some(Incoming { tag: arriving, target, len, got }) = &mut self.incoming
            && *arriving == tag
            && let Target::Kept(bytes) = target
            && *len == into.len_bytes
        {
            write(into, 0, &bytes[..*got]);
            *target = Target::Posted(into, handle);
            return;
        }
        if let Some(error) = self.failure(rank) {
            states[handle] = State::Failed(error);
            return;
        }
        self.posted.entry(tag).or_default().push_back((into, handle));
    }

    pub(super) fn cancel(&mut self, handle: usize) {
        self.posted.retain(|_, queue| {
            queue.retain(|&(_, posted)| posted != handle);
            !queue.is_empty()
        });
        if let Some(incoming) = &mut self.incoming
            && matches!(incoming.target, Target::Posted(_, posted) if posted == handle)
        {
            incoming.target = Target::Dropped;
        }
        self.outgoing.retain(|out| out.handle != Some(handle) || out.sent > 0);
        for out in self.outgoing.iter_mut().filter(|out| out.handle == Some(handle)) {
            out.handle = None;
            if let Body::Region(region) = out.body {
                out.body = Body::Kept(bytes(&region).to_vec());
            }
        }
    }

    /// Moves what can be moved now; whether anything did.
    pub(super) fn progress(&mut self, rank: usize, states: &mut Slab<State>) -> bool {
        if self.stream.is_none() || self.dead.is_some() {
            return false;
        }
        let moved = self.flush(states).and_then(|sent| Ok(self.fill(rank, states)? || sent));
        match moved {
            Ok(moved) => moved,
            Err(error) => {
                self.die(rank, &error, states);
                true
            }
        }
    }

    fn flush(&mut self, states: &mut Slab<State>) -> std::io::Result<bool> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let mut any = false;
        while let Some(out) = self.outgoing.front_mut() {
            let body = match &out.body {
                Body::Region(region) => bytes(region),
                Body::Kept(kept) => kept,
            };
            let total = HEADER_BYTES + body.len();
            let written = if out.sent < HEADER_BYTES {
                stream.write_vectored(&[IoSlice::new(&out.header[out.sent..]), IoSlice::new(body)])
            } else {
                stream.write(&body[out.sent - HEADER_BYTES..])
            };
            match written {
                Ok(len) => out.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            any = true;
            if out.sent == total {
                let done = self.outgoing.pop_front();
                if let Some(handle) = done.and_then(|out| out.handle) {
                    states[handle] = State::Finished;
                }
            }
        }
        Ok(any)
    }

    fn fill(&mut self, rank: usize, states: &mut Slab<State>) -> std::io::Result<bool> {
        let mut any = false;
        let mut buffer = [0; READ_BYTES];
        loop {
            let Some(stream) = &mut self.stream else { return Ok(any) };
            match stream.read(&mut buffer) {
                Ok(0) => {
                    return Err(std::io::Error::new(
                        ErrorKind::ConnectionReset,
                        "it closed the connection",
                    ));
                }
                Ok(len) => {
                    any = true;
                    self.take(rank, &buffer[..len], states);
                    if len < READ_BYTES {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes that arrived.
    fn take(&mut self, rank: usize, mut bytes: &[u8], states: &mut Slab<State>) {
        loop {
            if let Some(incoming) = &mut self.incoming {
                let len = bytes.len().min(incoming.len - incoming.got);
                let (now, rest) = bytes.split_at(len);
                match &mut incoming.target {
                    Target::Posted(region, _) => write(*region, incoming.got, now),
                    Target::Kept(kept) => kept.extend_from_slice(now),
                    Target::Dropped => {}
                }
                incoming.got += len;
                bytes = rest;
                if incoming.got < incoming.len {
                    return;
                }
                self.arrived(states);
            }
            if bytes.is_empty() {
                return;
            }
            let len = bytes.len().min(HEADER_BYTES - self.header.len());
            self.header.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if self.header.len() < HEADER_BYTES {
                return;
            }
            self.begin(rank, states);
        }
    }

    fn begin(&mut self, rank: usize, states: &mut Slab<State>) {
        let word = |from: usize| u16::from_le_bytes([self.header[from], self.header[from + 1]]);
        let tag = MessageTag { sequence: word(8), step: word(10) };
        let len = u64::from_le_bytes(std::array::from_fn(|i| self.header[i])) as usize;
        self.header.clear();
        let posted = self.posted.get_mut(&tag).and_then(VecDeque::pop_front);
        if self.posted.get(&tag).is_some_and(VecDeque::is_empty) {
            self.posted.remove(&tag);
        }
        let target = match posted {
            None => Target::Kept(Vec::with_capacity(len.min(1 << 20))),
            Some((into, handle)) => match fitting(rank, len, into.len_bytes) {
                State::Finished => Target::Posted(into, handle),
                failed => {
                    states[handle] = failed;
                    Target::Dropped
                }
            },
        };
        self.incoming = Some(Incoming { tag, len, got: 0, target });
    }

    fn arrived(&mut self, states: &mut Slab<State>) {
        let Some(Incoming { tag, target, .. }) = self.incoming.take() else { return };
        match target {
            Target::Posted(_, handle) => states[handle] = State::Finished,
            Target::Kept(kept) => self.early.entry(tag).or_default().push_back(kept),
            Target::Dropped => {}
        }
    }

    fn failure(&self, rank: usize) -> Option<TransportError> {
        let reason = self.dead.clone()?;
        Some(TransportError::PeerFailed { peer: Rank::from(rank), reason })
    }

    fn die(&mut self, rank: usize, error: &std::io::Error, states: &mut Slab<State>) {
        self.dead = Some(error.to_string());
        self.stream = None;
        let Some(failure) = self.failure(rank) else { return };
        let arriving = self.incoming.take().and_then(|incoming| match incoming.target {
            Target::Posted(_, handle) => Some(handle),
            Target::Kept(_) | Target::Dropped => None,
        });
        let waiting = self.posted.drain().flat_map(|(_, queue)| queue).map(|(_, handle)| handle);
        let sending = self.outgoing.drain(..).filter_map(|out| out.handle);
        for handle in waiting.chain(sending).chain(arriving) {
            states[handle] = State::Failed(failure.clone());
        }
    }
}

/// Whether a message has the length that is asked for.
fn fitting(rank: usize, sent_bytes: usize, room_bytes: usize) -> State {
    if sent_bytes == room_bytes {
        return State::Finished;
    }
    State::Failed(TransportError::Truncated { peer: Rank::from(rank), sent_bytes, room_bytes })
}

fn bytes(region: &Region) -> &[u8] {
    if region.len_bytes == 0 {
        return &[];
    }
    // SAFETY: host memory that the poster keeps until the message has finished or is cancelled.
    unsafe {
        std::slice::from_raw_parts(
            std::ptr::with_exposed_provenance(region.address.0),
            region.len_bytes,
        )
    }
}

fn write(region: Region, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let place = std::ptr::with_exposed_provenance_mut::<u8>(region.address.0 + offset);
    // SAFETY: as in `bytes`; the region was found to have the message's length.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
}
