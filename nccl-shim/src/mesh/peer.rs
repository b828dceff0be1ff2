//! One connection: frames out, frames in, matched with what is asked for.
//!
//! Two processes of one host go over to rings in shared memory, each way for itself:
//!
//! ```text
//! both        RING (descriptor) over TCP, as the first frame
//! receiver    OPENED, where it can be
//! sender      SWITCH over TCP; what it sends from then on goes into the ring
//! receiver    reads the ring from SWITCH on
//! ```
//!
//! The connection stays, to tell when the other has gone.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;

use hetccl_core::{MessageTag, Rank, Region, TransportError};
use hetccl_runtime::shared::Descriptor;
use slab::Slab;

use super::State;
use super::ring::{Reader, Writer};

const HEADER_BYTES: usize = 16;
/// Where in the header its kind is.
const KIND_AT: usize = 12;
/// Read at a time.
const READ_BYTES: usize = 64 << 10;
/// Looks into a ring between two looks at its connection.
const RING_LOOKS: u32 = 128;

/// What a frame is, in its header.
const MESSAGE: u8 = 0;
const RING: u8 = 1;
const OPENED: u8 = 2;
const SWITCH: u8 = 3;

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
    /// Of a cancelled send that had begun, whose memory is the caller's again, or of the connection's own.
    Kept(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Region(region) => bytes(region),
            Body::Kept(kept) => kept,
        }
    }
}

impl Outgoing {
    /// A frame of the connection's own.
    fn control(kind: u8, body: &[u8]) -> Outgoing {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[KIND_AT] = kind;
        Outgoing { header, body: Body::Kept(body.to_vec()), sent: 0, handle: None }
    }

    /// Header and body, from the first byte that has not been sent.
    fn rest(&self) -> (&[u8], &[u8]) {
        let header = &self.header[self.sent.min(HEADER_BYTES)..];
        (header, &self.body.bytes()[self.sent.saturating_sub(HEADER_BYTES)..])
    }
}

/// Where an arriving message goes.
#[derive(Debug)]
enum Target {
    Posted(Region, usize),
    Kept(Vec<u8>),
    /// A frame of this kind, for the connection itself.
    Control(u8, Vec<u8>),
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
    /// Bytes of rings, where the other is near enough for them.
    ring_bytes: Option<usize>,
    /// The ring to the other, and whether what is sent goes there.
    writer: Option<(Writer, bool)>,
    /// The ring from the other, and whether it is read.
    reader: Option<(Reader, bool)>,
    looks: u32,
    header: Vec<u8>,
    incoming: Option<Incoming>,
    posted: HashMap<MessageTag, VecDeque<(Region, usize)>>,
    early: HashMap<MessageTag, VecDeque<Vec<u8>>>,
}

impl Peer {
    /// A rank, with rings of so many bytes where it is on this host.
    pub(super) fn new(ring_bytes: Option<usize>) -> Peer {
        Peer {
            stream: None,
            dead: None,
            outgoing: VecDeque::new(),
            ring_bytes,
            writer: None,
            reader: None,
            looks: 0,
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
        let Some(ring_bytes) = self.ring_bytes else { return };
        // Without shared memory, the connection does.
        if let Ok((writer, descriptor)) = Writer::new(ring_bytes) {
            self.writer = Some((writer, false));
            self.outgoing.push_front(Outgoing::control(RING, &descriptor));
        }
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
            let (header, body) = out.rest();
            let len = header.len() + body.len();
            let written = match &mut self.writer {
                Some((writer, true)) => match writer.write(header) {
                    len if len < header.len() => len,
                    len => len + writer.write(body),
                },
                _ => match stream.write_vectored(&[IoSlice::new(header), IoSlice::new(body)]) {
                    Ok(written) => written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                },
            };
            out.sent += written;
            any |= written > 0;
            if written == len {
                let is_switch = out.header[KIND_AT] == SWITCH;
                let done = self.outgoing.pop_front();
                if let Some(handle) = done.and_then(|out| out.handle) {
                    states[handle] = State::Finished;
                }
                if let (true, Some((_, is_used))) = (is_switch, &mut self.writer) {
                    *is_used = true;
                }
            } else if written == 0 {
                return Ok(any);
            }
        }
        Ok(any)
    }

    fn fill(&mut self, rank: usize, states: &mut Slab<State>) -> std::io::Result<bool> {
        let mut any = self.fill_from_ring(rank, states);
        if matches!(self.reader, Some((_, true))) {
            self.looks += 1;
            if any || self.looks < RING_LOOKS {
                return Ok(any);
            }
            self.looks = 0;
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            let Some(stream) = &mut self.stream else { return Ok(any) };
            match stream.read(&mut buffer) {
                Ok(0) => {
                    // What it wrote before it went is there still.
                    self.fill_from_ring(rank, states);
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

    fn fill_from_ring(&mut self, rank: usize, states: &mut Slab<State>) -> bool {
        let Some((mut reader, true)) = self.reader.take_if(|(_, is_used)| *is_used) else {
            return false;
        };
        let any = reader.read(|bytes| self.take(rank, bytes, states));
        self.reader = Some((reader, true));
        any
    }

    /// A frame for the connection itself.
    fn control(&mut self, kind: u8, body: &[u8]) {
        match (kind, self.ring_bytes) {
            (RING, Some(ring_bytes)) => {
                let descriptor = Descriptor::try_from(body).ok();
                let reader = descriptor.and_then(|d| Reader::open(ring_bytes, &d).ok());
                if let Some(reader) = reader {
                    self.reader = Some((reader, false));
                    self.outgoing.push_back(Outgoing::control(OPENED, &[]));
                }
            }
            (OPENED, _) => {
                if let Some((writer, _)) = &mut self.writer {
                    writer.seal();
                    self.outgoing.push_back(Outgoing::control(SWITCH, &[]));
                }
            }
            (SWITCH, _) => {
                if let Some((_, is_used)) = &mut self.reader {
                    *is_used = true;
                }
            }
            _ => {}
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
                    Target::Kept(kept) | Target::Control(_, kept) => kept.extend_from_slice(now),
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
        let kind = self.header[KIND_AT];
        self.header.clear();
        if kind != MESSAGE {
            self.incoming =
                Some(Incoming { tag, len, got: 0, target: Target::Control(kind, Vec::new()) });
            return;
        }
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
            Target::Control(kind, body) => self.control(kind, &body),
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
            Target::Kept(_) | Target::Control(..) | Target::Dropped => None,
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
