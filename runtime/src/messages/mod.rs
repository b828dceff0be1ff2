//! Messages of communicators in which some rank may have device memory.
//!
//! What a message's two ends have is unknown to each other, so how a message travels depends on its length alone. Short
//! ones go as they are, through pinned host memory where an end is device memory. Long ones begin with a header in which
//! the sender says what it has:
//!
//! ```text
//! device memory that the receiver's device can read     sender -> header (IPC handle)
//!   (same host, same vendor)                            receiver copies      receiver -> done
//! the same, and the receiver can't read it              sender -> header     receiver -> stage    sender -> chunks
//! the same, on one host                                 sender -> header     receiver -> ring     sender -> ring's name
//!                                                       pieces in the ring                        receiver -> done
//! device memory that other processes may not read       as above, with the question in the header
//! anything else                                         sender -> header     sender -> chunks
//! ```
//!
//! A ring is pinned memory that two processes of one host share ([`rings`]).
//!
//! Where the wire takes the device memory of all ranks as it is (UCX with modules for it), messages of any length go to it
//! whole instead of through pinned host memory, and without headers where nobody reads a peer's memory by IPC.
//!
//! Programs' own messages between ranks of one device begin otherwise ([`near`]).
//!
//! Chunks pass through pinned host memory, several at a time, so that copies and messages overlap; an end in host memory
//! sends and receives them where they lie.

mod chunks;
mod header;
mod near;
mod rings;

use std::cell::RefCell;

use hetccl_core::{
    Address, Handle, MemoryType, MessageTag, Posted, Rank, Region, Transport, TransportError,
};
use hetccl_gpu::{Exported, Gpus, NoRing, RemoteRing, RingName, host_id};

use crate::waiting::all_finished;
use slab::Slab;

use chunks::Chunks;
use header::{Body, HEADER_BYTES, Header};
use rings::{Receiving, Sending};

/// Messages of this layer; the others' handles are the inner transport's.
const OURS: u64 = 1 << 63;
/// Set in the tags of messages that go against the direction of the message they are about.
const REPLY: u16 = 1 << 15;
const DONE: u8 = 1;
const STAGE: u8 = 2;
const RING: u8 = 3;

/// How messages are cut; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Messages of this many bytes and more have a header.
    pub(crate) long_bytes: usize,
    /// Length of a chunk.
    pub(crate) chunk_bytes: usize,
    /// Bytes of a slot of rings; 0: there are none.
    pub(crate) ring_bytes: usize,
    /// Whether device memory may be read by other processes.
    pub(crate) ipc: bool,
}

/// The messages under way.
#[derive(Debug)]
pub(crate) struct Messages {
    cut: Cut,
    host: u64,
    /// `None` while a message is being advanced.
    active: Slab<Option<Box<Message>>>,
}

impl Messages {
    pub(crate) fn new(cut: Cut) -> Messages {
        Messages { cut, host: host_id(), active: Slab::new() }
    }
}

/// A transport that takes regions of any memory, on top of one that takes those of the host.
pub(crate) struct AnyMemory<'a> {
    pub(crate) inner: &'a mut dyn Transport,
    pub(crate) gpus: &'a RefCell<Gpus>,
    pub(crate) messages: &'a mut Messages,
    /// The wire takes device memory.
    pub(crate) direct: bool,
}

/// One message under way.
#[derive(Debug)]
struct Message {
    peer: Rank,
    tag: MessageTag,
    region: Region,
    sends: bool,
    phase: Phase,
    header: Box<[u8; HEADER_BYTES]>,
    /// Replies: the request for a ring, and the last one, which may be sent before the first has gone.
    reply: Box<[u8; 2]>,
    /// What a sender says when all pieces are in the ring.
    filled: Box<[u8; 1]>,
    /// Own headers and replies under way.
    control: Vec<Handle>,
}

#[derive(Debug)]
enum Phase {
    /// The receiver waits for the header.
    Header(Option<Handle>),
    /// The sender waits for the reply.
    Reply(Option<Handle>),
    /// The receiver's device copies.
    Copying(Handle),
    /// The higher rank of one device waits for the word of the lower one.
    Offered(Option<Handle>),
    /// The lower rank of one device waits for where the other's memory is.
    Offer(Option<Handle>),
    Chunks(Chunks),
    /// The sender's side of a ring, and the receiver's word at the end.
    Sending {
        ring: Sending,
        told: bool,
        end: Option<Handle>,
    },
    /// The receiver's side of a ring, and the sender's word.
    Receiving {
        ring: Receiving,
        end: Option<Handle>,
    },
    /// All but the own control messages has finished.
    Closing,
}

impl Transport for AnyMemory<'_> {
    fn send(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        from: Region,
    ) -> Result<Posted, TransportError> {
        if self.is_plain(from) {
            return self.inner.send(peer, tag, from);
        }
        if from.len_bytes < self.messages.cut.long_bytes {
            return self.run(Message::new(peer, tag, from, true, Phase::Chunks(Chunks::whole())));
        }
        let mut message = Message::new(peer, tag, from, true, Phase::Closing);
        let started = message.announce(self);
        self.begun(message, started)
    }

    fn recv(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        into: Region,
    ) -> Result<Posted, TransportError> {
        if self.is_plain(into) {
            return self.inner.recv(peer, tag, into);
        }
        if into.len_bytes < self.messages.cut.long_bytes {
            return self.run(Message::new(peer, tag, into, false, Phase::Chunks(Chunks::whole())));
        }
        let mut message = Message::new(peer, tag, into, false, Phase::Closing);
        let started = message.expect(self);
        self.begun(message, started)
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        if handle.0 & OURS == 0 {
            return self.inner.test(handle);
        }
        let index = (handle.0 & !OURS) as usize;
        let slot = self.messages.active.get_mut(index);
        let Some(mut message) = slot.and_then(Option::take) else { return Ok(true) };
        match message.advance(self) {
            Ok(false) => {
                self.messages.active[index] = Some(message);
                Ok(false)
            }
            Ok(true) => {
                self.messages.active.remove(index);
                Ok(true)
            }
            Err(error) => {
                self.messages.active.remove(index);
                message.give_up(self);
                Err(error)
            }
        }
    }

    fn cancel(&mut self, handle: Handle) {
        if handle.0 & OURS == 0 {
            return self.inner.cancel(handle);
        }
        let removed = self.messages.active.try_remove((handle.0 & !OURS) as usize);
        if let Some(message) = removed.flatten() {
            message.give_up(self);
        }
    }
}

impl AnyMemory<'_> {
    /// Whether a message goes to the wire as it is, at both ends: short ones do, from and into memory that the wire
    /// takes, and long ones where no header is needed.
    fn is_plain(&self, region: Region) -> bool {
        let short = region.len_bytes < self.messages.cut.long_bytes;
        match region.memory {
            MemoryType::Host => short || (self.direct && !self.messages.cut.ipc),
            _ => self.direct && (short || !self.messages.cut.ipc),
        }
    }

    /// Whether messages may go through rings.
    fn rings(&self) -> bool {
        self.messages.cut.ring_bytes > 0 && !self.direct
    }

    /// What follows a header where the receiver does not read the sender's memory.
    fn chunks(&self) -> Chunks {
        if self.direct { Chunks::direct() } else { Chunks::cut(self.messages.cut.chunk_bytes) }
    }

    fn begun(
        &mut self,
        message: Message,
        started: Result<(), TransportError>,
    ) -> Result<Posted, TransportError> {
        match started {
            Ok(()) => self.run(message),
            Err(error) => {
                message.give_up(self);
                Err(error)
            }
        }
    }

    fn run(&mut self, message: Message) -> Result<Posted, TransportError> {
        let mut message = Box::new(message);
        match message.advance(self) {
            Ok(true) => Ok(Posted::Done),
            Ok(false) => {
                let index = self.messages.active.insert(Some(message));
                Ok(Posted::Pending(Handle(OURS | index as u64)))
            }
            Err(error) => {
                message.give_up(self);
                Err(error)
            }
        }
    }
}

impl Message {
    fn new(peer: Rank, tag: MessageTag, region: Region, sends: bool, phase: Phase) -> Message {
        let (header, reply, filled) =
            (Box::new([0; HEADER_BYTES]), Box::new([0; 2]), Box::new([DONE]));
        Message { peer, tag, region, sends, phase, header, reply, filled, control: Vec::new() }
    }

    fn reply_tag(&self) -> MessageTag {
        MessageTag { step: self.tag.step ^ REPLY, ..self.tag }
    }

    /// The region's name for other processes; `None` where they may or can't have one.
    fn export(&self, port: &AnyMemory<'_>) -> Result<Option<Exported>, TransportError> {
        match self.region.memory {
            MemoryType::Host => Ok(None),
            _ if !port.messages.cut.ipc => Ok(None),
            _ => Ok(port.gpus.borrow_mut().export(self.region)?),
        }
    }

    /// Sends the first header, and waits for what follows from it.
    fn announce(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let exported = self.export(port)?;
        let body = match exported {
            Some(exported) => Body::Ipc(exported),
            None if self.region.memory != MemoryType::Host && port.rings() => Body::Ask,
            None => Body::Chunks,
        };
        self.send_header(port, body)?;
        if body == Body::Chunks {
            self.phase = Phase::Chunks(port.chunks());
            return Ok(());
        }
        let reply = Region::of_bytes_mut(&mut self.reply[..1]);
        self.phase = Phase::Reply(pending(port.inner.recv(self.peer, self.reply_tag(), reply)?));
        Ok(())
    }

    /// The receiver is ready to read a ring: takes one and tells its name; whether the message can go on. Only receivers
    /// that are ready keep rings busy, so each comes back.
    fn announce_ring(&mut self, port: &mut AnyMemory<'_>) -> Result<bool, TransportError> {
        // The header's memory is free once the first has gone.
        if !all_finished(&mut self.control, |handle| port.inner.test(handle))? {
            return Ok(false);
        }
        let ring = {
            let mut gpus = port.gpus.borrow_mut();
            let lane = gpus.lane(self.region)?;
            gpus.take_ring(lane, port.messages.cut.ring_bytes)
        };
        let ring = match ring {
            Ok(ring) => ring,
            Err(NoRing::Busy) => return Ok(false),
            Err(NoRing::Impossible) => {
                self.send_header(port, Body::Chunks)?;
                self.phase = Phase::Chunks(port.chunks());
                return Ok(true);
            }
        };
        let name = ring.name();
        let ring = Sending::new(ring, self.region.len_bytes);
        // The ring has an owner before anything can fail.
        self.phase = Phase::Sending { ring, told: false, end: None };
        self.send_header(port, Body::Ring(name))?;
        let word = Region::of_bytes_mut(&mut self.reply[..1]);
        let reply = pending(port.inner.recv(self.peer, self.reply_tag(), word)?);
        if let Phase::Sending { end, .. } = &mut self.phase {
            *end = reply;
        }
        Ok(true)
    }

    fn send_header(&mut self, port: &mut AnyMemory<'_>, body: Body) -> Result<(), TransportError> {
        let header = Header {
            len_bytes: self.region.len_bytes as u64,
            host: port.messages.host,
            rings: port.rings(),
            body,
        };
        *self.header = header.to_bytes();
        let posted = port.inner.send(self.peer, self.tag, Region::of_bytes(&self.header[..]))?;
        self.note(posted);
        Ok(())
    }

    fn expect(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let header = Region::of_bytes_mut(&mut self.header[..]);
        self.phase = Phase::Header(pending(port.inner.recv(self.peer, self.tag, header)?));
        Ok(())
    }

    /// Keeps a control message's handle until the end.
    fn note(&mut self, posted: Posted) {
        self.control.extend(pending(posted));
    }

    /// Does what can be done now; whether the message has finished.
    fn advance(&mut self, port: &mut AnyMemory<'_>) -> Result<bool, TransportError> {
        loop {
            match &mut self.phase {
                Phase::Header(waiting) => {
                    if !arrived(port.inner, waiting)? {
                        return Ok(false);
                    }
                    self.answer(port)?;
                }
                Phase::Reply(waiting) => {
                    if !arrived(port.inner, waiting)? {
                        return Ok(false);
                    }
                    match std::hint::black_box(&self.reply)[0] {
                        DONE => self.phase = Phase::Closing,
                        RING => {
                            if !self.announce_ring(port)? {
                                return Ok(false);
                            }
                        }
                        _ => self.phase = Phase::Chunks(port.chunks()),
                    }
                }
                Phase::Sending { ring, told, end } => {
                    let all_there = ring.advance(port.gpus, self.region)?;
                    if all_there && !*told {
                        *told = true;
                        let word = Region::of_bytes(&self.filled[..]);
                        let posted = port.inner.send(self.peer, self.tag, word)?;
                        self.control.extend(pending(posted));
                    }
                    if !arrived(port.inner, end)? {
                        return Ok(false);
                    }
                    self.read_out(port);
                }
                Phase::Receiving { ring, end } => {
                    let all_there = ring.advance(port.gpus, self.region)?;
                    if !arrived(port.inner, end)? || !all_there {
                        return Ok(false);
                    }
                    if let Phase::Receiving { ring, .. } =
                        std::mem::replace(&mut self.phase, Phase::Closing)
                    {
                        ring.end(port.gpus);
                    }
                    self.respond(port, DONE)?;
                }
                Phase::Copying(copy) => {
                    if !port.gpus.borrow_mut().test(*copy)? {
                        return Ok(false);
                    }
                    self.phase = Phase::Closing;
                    self.respond(port, DONE)?;
                }
                Phase::Offered(waiting) => {
                    if !arrived(port.inner, waiting)? {
                        return Ok(false);
                    }
                    self.hear_verdict(port)?;
                }
                Phase::Offer(waiting) => {
                    if !arrived(port.inner, waiting)? {
                        return Ok(false);
                    }
                    self.take_offer(port)?;
                }
                Phase::Chunks(chunks) => {
                    let end = chunks::End {
                        peer: self.peer,
                        tag: self.tag,
                        region: self.region,
                        sends: self.sends,
                    };
                    if !chunks.advance(&end, port.inner, port.gpus)? {
                        return Ok(false);
                    }
                    self.phase = Phase::Closing;
                }
                Phase::Closing => {
                    return all_finished(&mut self.control, |handle| port.inner.test(handle));
                }
            }
        }
    }

    /// The header is there: what comes next.
    fn answer(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let header = Header::from_bytes(std::hint::black_box(&self.header));
        let (sent_bytes, room_bytes) = (header.len_bytes as usize, self.region.len_bytes);
        if sent_bytes != room_bytes {
            return Err(TransportError::Truncated { peer: self.peer, sent_bytes, room_bytes });
        }
        let here = header.host == port.messages.host;
        match header.body {
            Body::Chunks => {
                self.phase = Phase::Chunks(port.chunks());
                return Ok(());
            }
            Body::Ipc(exported) if here => {
                if let Some(copy) = copy_between(port.gpus, &exported, self.region, false)? {
                    self.phase = Phase::Copying(copy);
                    return Ok(());
                }
                if header.rings {
                    self.respond(port, RING)?;
                    return self.expect(port);
                }
            }
            Body::Ask if here => {
                self.respond(port, RING)?;
                return self.expect(port);
            }
            Body::Ring(name) if here => {
                if let Some(ring) = self.open_ring(port, &name)? {
                    let ring = Receiving::new(ring, self.region.len_bytes);
                    // The ring has an owner before anything can fail.
                    self.phase = Phase::Receiving { ring, end: None };
                    let word = Region::of_bytes_mut(&mut self.filled[..]);
                    let word = pending(port.inner.recv(self.peer, self.tag, word)?);
                    if let Phase::Receiving { end, .. } = &mut self.phase {
                        *end = word;
                    }
                    return Ok(());
                }
            }
            Body::Ipc(_) | Body::Ask | Body::Ring(_) => {}
        }
        self.respond(port, STAGE)?;
        self.phase = Phase::Chunks(port.chunks());
        Ok(())
    }

    fn open_ring(
        &self,
        port: &mut AnyMemory<'_>,
        name: &RingName,
    ) -> Result<Option<RemoteRing>, TransportError> {
        let mut gpus = port.gpus.borrow_mut();
        let lane = match self.region.memory {
            MemoryType::Host => None,
            _ => Some(gpus.lane(self.region)?),
        };
        Ok(gpus.open_ring(name, lane))
    }

    /// The receiver has spoken: it has read the ring to its end, or could not open it.
    fn read_out(&mut self, port: &mut AnyMemory<'_>) {
        let Phase::Sending { ring, .. } = std::mem::replace(&mut self.phase, Phase::Closing) else {
            return;
        };
        if std::hint::black_box(&self.reply)[0] == DONE {
            ring.end(port.gpus);
        } else {
            ring.give_back(port.gpus);
            self.phase = Phase::Chunks(port.chunks());
        }
    }

    fn respond(&mut self, port: &mut AnyMemory<'_>, word: u8) -> Result<(), TransportError> {
        let place = usize::from(word == RING);
        self.reply[place] = word;
        let reply = Region::of_bytes(&self.reply[place..=place]);
        let posted = port.inner.send(self.peer, self.reply_tag(), reply)?;
        self.note(posted);
        Ok(())
    }

    /// Cancels what is under way.
    fn give_up(mut self, port: &mut AnyMemory<'_>) {
        for handle in self.control.drain(..) {
            port.inner.cancel(handle);
        }
        match self.phase {
            Phase::Header(Some(handle))
            | Phase::Reply(Some(handle))
            | Phase::Offered(Some(handle))
            | Phase::Offer(Some(handle)) => port.inner.cancel(handle),
            Phase::Copying(copy) => {
                // The memory may be reused only after the copy.
                let _ = port.gpus.borrow_mut().finish(copy);
            }
            Phase::Chunks(chunks) => chunks.give_up(port.inner, port.gpus),
            Phase::Sending { ring, end, .. } => {
                end.into_iter().for_each(|handle| port.inner.cancel(handle));
                ring.give_up(port.gpus);
            }
            Phase::Receiving { ring, end } => {
                end.into_iter().for_each(|handle| port.inner.cancel(handle));
                ring.end(port.gpus);
            }
            Phase::Header(None)
            | Phase::Reply(None)
            | Phase::Offered(None)
            | Phase::Offer(None)
            | Phase::Closing => {}
        }
    }
}

/// Starts to copy another process's device memory into a region, or a region to there; `None` where the region's device
/// can't reach it.
fn copy_between(
    gpus: &RefCell<Gpus>,
    exported: &Exported,
    own: Region,
    sends: bool,
) -> Result<Option<Handle>, TransportError> {
    if hetccl_gpu::Vendor::of(own.memory) != Some(exported.vendor) {
        return Ok(None);
    }
    let mut gpus = gpus.borrow_mut();
    let lane = gpus.lane(own)?;
    let Some(address) = gpus.import(lane, exported) else { return Ok(None) };
    let other = Region { address: Address(address), ..own };
    let (from, into) = if sends { (own, other) } else { (other, own) };
    Ok(Some(gpus.copy(lane, hetccl_gpu::Order::Own, from, into)?))
}

fn pending(posted: Posted) -> Option<Handle> {
    match posted {
        Posted::Done => None,
        Posted::Pending(handle) => Some(handle),
    }
}

/// Whether an awaited message is there. The handle is gone when it is, or has failed.
fn arrived(
    inner: &mut dyn Transport,
    waiting: &mut Option<Handle>,
) -> Result<bool, TransportError> {
    let Some(handle) = *waiting else { return Ok(true) };
    match inner.test(handle) {
        Ok(false) => Ok(false),
        ended => {
            *waiting = None;
            ended
        }
    }
}

/// For the fuzzers: a header that is read is written again as what it was taken for.
#[cfg(feature = "fuzz")]
pub(crate) fn read_header(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk() {
        let header = Header::from_bytes(bytes);
        assert_eq!(Header::from_bytes(&header.to_bytes()), header);
    }
}
