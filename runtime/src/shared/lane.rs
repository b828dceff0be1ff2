//! One rank's way through a segment: slots, rings and the rules by which they are used again.
//!
//! A rank's ring is a stream of bytes with positions that only grow; position p lies at p modulo the ring's size, and a piece
//! never wraps: it starts at the ring's beginning instead. Writer and reader follow the same rule, so a reader that knows
//! where a message begins and how it is cut finds every piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{INLINE_BYTES, LINE, Layout, SLOTS};
use super::segment::Segment;
use super::wait::Waiter;
use crate::watch::{CallWord, Trouble, Watch};

/// Collectives without a word on how far this rank is, when they leave nothing in a ring.
const QUIET: u64 = SLOTS as u64 / 4;

/// In a slot's length: the message comes in pieces.
const IN_PIECES: u64 = 1 << 63;

/// A collective that failed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// Ranks differ in how much they send and receive.
    #[error("rank {peer} sent {sent_bytes} bytes where {room_bytes} were expected")]
    Truncated {
        /// Who sent.
        peer: usize,
        /// What was sent.
        sent_bytes: usize,
        /// What this rank expected.
        room_bytes: usize,
    },
    /// A process has ended.
    #[error("the process of rank {peer} has ended in the middle of a collective")]
    PeerGone {
        /// Whose.
        peer: usize,
    },
    /// Another rank's call of this number is another one.
    #[error("rank {peer} has called another collective, operation, datatype or root")]
    Mismatch {
        /// Who.
        peer: usize,
    },
    /// What the communicator's watch has found.
    #[error("{0:?}")]
    Trouble(Trouble),
}

/// A rank's slot for one collective, in one cache line. Plain fields are written before `number` and read after it.
#[repr(C, align(64))]
struct Slot {
    /// The collective's number + 1 and what it is (the stamp), when the rest is there.
    number: AtomicU64,
    /// Bytes of the message, with [`IN_PIECES`].
    len: u64,
    /// The message itself, or where it starts and ends in the ring.
    payload: [u64; INLINE_BYTES / 8],
}

const _: () = assert!(size_of::<Slot>() == LINE);

/// What another rank has sent for the collective under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// All of it, in one piece.
    Whole(*const u8),
    /// It comes in pieces: [`Lane::take`], [`Lane::skip`], [`Lane::acknowledge`].
    InPieces,
    /// Not what was expected; it has been dismissed.
    Wrong,
}

/// Who reads a message in pieces: others do not hold up the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    All,
    One(usize),
}

impl Readers {
    fn include(self, rank: usize) -> bool {
        match self {
            Readers::All => true,
            Readers::One(only) => only == rank,
        }
    }
}

/// This rank's end of a segment. One collective at a time.
#[derive(Debug)]
pub struct Lane {
    segment: Segment,
    layout: Layout,
    waiter: Waiter,
    rank: usize,
    /// The number of the collective under way.
    number: u64,
    /// Up to where this rank has filled its ring.
    position: u64,
    /// Who reads the message in pieces that this rank sends, and where it began.
    readers: Readers,
    began_at: u64,
    /// Where the ring stood after each of the last collectives.
    ends: [u64; SLOTS],
    /// What is known of the others: collectives that all have finished, and up to where this rank's ring is free.
    all_done: u64,
    free_to: u64,
    /// Finished collectives as the others have been told.
    told: u64,
    /// Where this rank stands in each other rank's message.
    cursors: Vec<u64>,
    wrong: Option<LaneError>,
    /// What the collective under way is, in the upper half of the stamp; 0: not compared.
    call: u64,
    /// Who looks after the other ranks.
    watch: Option<Arc<Watch>>,
    pids: Vec<i32>,
    /// Partial results of reductions.
    pub(super) scratch: Vec<u64>,
    pub(super) operands: Vec<*const u8>,
}

// SAFETY: pointers are into the segment, or set and used within one collective.
unsafe impl Send for Lane {}

impl Lane {
    /// The end of `rank`. `pids` are the processes of all ranks, where they can be asked for (empty: they can't).
    pub fn new(segment: Segment, rank: usize, pids: Vec<i32>, waiter: Waiter) -> Lane {
        let layout = segment.layout();
        let chunk_bytes = layout.ring_bytes() / 8;
        Lane {
            layout,
            waiter,
            rank,
            number: 0,
            position: 0,
            readers: Readers::All,
            began_at: 0,
            ends: [0; SLOTS],
            all_done: 0,
            free_to: 0,
            told: 0,
            cursors: vec![0; layout.ranks()],
            wrong: None,
            call: 0,
            watch: None,
            pids,
            scratch: vec![0; chunk_bytes / 8],
            operands: Vec::with_capacity(layout.ranks()),
            segment,
        }
    }

    /// Lets a watch look after the other ranks while this one waits.
    pub fn watch_by(&mut self, watch: Option<Arc<Watch>>) {
        self.watch = watch;
    }

    /// Says what the next collective is; ranks that say different things get an error.
    #[inline]
    pub fn next_is(&mut self, call: CallWord) {
        // A lane has at most 64 ranks, so a root takes 7 bits: nothing is lost.
        self.call = (call.0 & 0xffff_ffff) << 32;
    }

    /// What a slot of the collective under way says first.
    #[inline]
    fn stamp(&self) -> u64 {
        (self.number + 1) & u64::from(u32::MAX) | self.call
    }

    /// The segment's number.
    pub fn id(&self) -> u64 {
        self.segment.id()
    }

    /// Collectives finished so far; equal on all ranks between collectives.
    pub fn finished(&self) -> u64 {
        self.number
    }

    /// Bytes of shared memory.
    pub fn segment_bytes(&self) -> usize {
        self.layout.segment_bytes()
    }

    /// The largest element that reductions can take.
    pub fn most_element_bytes(&self) -> usize {
        self.piece_bytes(2 * self.ranks())
    }

    #[inline]
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    #[inline]
    pub(super) fn ranks(&self) -> usize {
        self.layout.ranks()
    }

    /// Bytes of the largest message that goes in one piece.
    #[inline]
    pub(super) fn chunk_bytes(&self) -> usize {
        self.layout.ring_bytes() / 8
    }

    /// Bytes per piece, for messages of `parts` pieces a round: a round fills half of the ring at most.
    pub(super) fn piece_bytes(&self, parts: usize) -> usize {
        let share = self.layout.ring_bytes() / (2 * parts.max(1));
        (share & !(LINE - 1)).min(self.chunk_bytes())
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the layout's offsets are aligned and inside the segment, which lives as long as `self`.
        unsafe { &*self.segment.base().add(offset).cast::<AtomicU64>() }
    }

    #[inline]
    fn slot(&self, rank: usize) -> *mut Slot {
        let index = (self.number % SLOTS as u64) as usize;
        // SAFETY: inside the segment.
        unsafe { self.segment.base().add(self.layout.slots(rank)).cast::<Slot>().add(index) }
    }

    #[inline]
    fn in_ring(&self, rank: usize, position: u64) -> *mut u8 {
        let offset = position as usize & (self.layout.ring_bytes() - 1);
        // SAFETY: inside the segment.
        unsafe { self.segment.base().add(self.layout.ring(rank) + offset) }
    }

    /// Where a piece of `len` bytes goes that is written at `position` or after it, and where the next may begin.
    #[inline]
    fn place(&self, position: u64, len: usize) -> (u64, u64) {
        let ring = self.layout.ring_bytes() as u64;
        let room = ring - (position & (ring - 1));
        let at = if len as u64 > room { position + room } else { position };
        (at, (at + len as u64).next_multiple_of(LINE as u64))
    }

    /// Waits for `ready`; `peer` is who keeps this rank waiting.
    #[inline]
    fn wait(&self, peer: usize, ready: impl Fn() -> bool) -> Result<(), LaneError> {
        self.waiter.until(ready, || self.gone(peer))
    }

    #[cold]
    fn gone(&self, peer: usize) -> Option<LaneError> {
        // SAFETY: slots are inside the segment; `number` is atomic.
        let theirs = unsafe { &(*self.slot(peer)).number }.load(Ordering::Acquire);
        let trouble = self.watch.as_ref().and_then(|watch| watch.look_in_call(peer).err());
        if let Some(trouble) = trouble {
            return Some(LaneError::Trouble(trouble));
        }
        if theirs as u32 == self.stamp() as u32 && theirs != self.stamp() && self.watch.is_none() {
            return Some(LaneError::Mismatch { peer });
        }
        let pid = *self.pids.get(peer)?;
        // SAFETY: signal 0 only asks.
        let asked = unsafe { libc::kill(pid, 0) };
        let error = std::io::Error::last_os_error().raw_os_error();
        (asked != 0 && error == Some(libc::ESRCH)).then_some(LaneError::PeerGone { peer })
    }

    // ---- sending ----

    /// Waits until this rank's slot is free.
    #[inline]
    fn claim_slot(&mut self) -> Result<(), LaneError> {
        if self.number - self.all_done >= SLOTS as u64 { self.wait_for_slot() } else { Ok(()) }
    }

    #[cold]
    fn wait_for_slot(&mut self) -> Result<(), LaneError> {
        let needed = self.number + 1 - SLOTS as u64;
        let mut least = u64::MAX;
        for peer in (0..self.ranks()).filter(|&peer| peer != self.rank) {
            let done = self.word(self.layout.done(peer));
            self.wait(peer, || done.load(Ordering::Acquire) >= needed)?;
            least = least.min(done.load(Ordering::Acquire));
        }
        self.all_done = least;
        Ok(())
    }

    /// Room for `len` bytes in the ring.
    #[inline]
    fn claim(&mut self, len: usize) -> Result<*mut u8, LaneError> {
        let (at, end) = self.place(self.position, len);
        // Peers that dismiss a message go past all of it at once.
        if end.saturating_sub(self.free_to) > self.layout.ring_bytes() as u64 {
            self.wait_for_room(end - self.layout.ring_bytes() as u64)?;
        }
        self.position = end;
        Ok(self.in_ring(self.rank, at))
    }

    /// Waits until all others have gone past `needed`.
    #[cold]
    fn wait_for_room(&mut self, needed: u64) -> Result<(), LaneError> {
        let mut free_to = u64::MAX;
        for peer in (0..self.ranks()).filter(|&peer| peer != self.rank) {
            self.wait(peer, || self.gone_past(peer) >= needed)?;
            free_to = free_to.min(self.gone_past(peer));
        }
        self.free_to = free_to;
        Ok(())
    }

    /// Up to where `peer` needs nothing of this rank's ring any more.
    fn gone_past(&self, peer: usize) -> u64 {
        // In this order: a peer's progress in a message is told before the message's end.
        let done = self.word(self.layout.done(peer)).load(Ordering::Acquire);
        let progress = self.word(self.layout.progress(peer, self.rank)).load(Ordering::Acquire);
        let finished = match done {
            0 => 0,
            // Finished what this rank is still at.
            done if done > self.number => return self.position,
            // `claim_slot` has seen to it that the entry is not an older one's.
            done => self.ends[((done - 1) % SLOTS as u64) as usize],
        };
        if finished == self.began_at && !self.readers.include(peer) {
            // It needs nothing of the messages before this one, and nothing of this one.
            return self.position;
        }
        finished.max(progress)
    }

    /// Sends `len` bytes, at most a chunk, that `fill` writes.
    ///
    /// # Safety
    /// `fill` writes `len` bytes at most.
    #[inline]
    pub(super) unsafe fn send(
        &mut self,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), LaneError> {
        self.claim_slot()?;
        self.readers = Readers::All;
        let slot = self.slot(self.rank);
        // SAFETY: the slot is this rank's, and all have finished the collective that had it before.
        unsafe {
            (&raw mut (*slot).len).write(len as u64);
            if len <= INLINE_BYTES {
                fill((&raw mut (*slot).payload).cast());
            } else {
                let into = self.claim(len)?;
                fill(into);
                // The claim may have gone on to the ring's beginning.
                (&raw mut (*slot).payload[0])
                    .write(self.position - len.next_multiple_of(LINE) as u64);
            }
            (*slot).number.store(self.stamp(), Ordering::Release);
        }
        Ok(())
    }

    /// Announces a message of `total` bytes in pieces: rounds of up to `piece` bytes of each of the `parts`, whose lengths
    /// are given. The pieces follow by [`put`](Lane::put).
    pub(super) fn announce(
        &mut self,
        total: usize,
        first: usize,
        parts: impl Iterator<Item = usize> + Clone,
        piece: usize,
        readers: Readers,
    ) -> Result<(), LaneError> {
        self.claim_slot()?;
        (self.readers, self.began_at) = (readers, self.position);
        let mut end = self.position;
        if first > 0 {
            end = self.place(end, first).1;
        }
        let rounds = parts.clone().max().unwrap_or(0).div_ceil(piece);
        for round in 0..rounds {
            for len in parts.clone().map(|len| part_of(len, round, piece)).filter(|&len| len > 0) {
                end = self.place(end, len).1;
            }
        }
        let slot = self.slot(self.rank);
        // SAFETY: as in `send`.
        unsafe {
            (&raw mut (*slot).len).write(total as u64 | IN_PIECES);
            (&raw mut (*slot).payload[0]).write(self.position);
            (&raw mut (*slot).payload[1]).write(end);
            (*slot).number.store(self.stamp(), Ordering::Release);
        }
        Ok(())
    }

    /// Sends the next piece.
    ///
    /// # Safety
    /// `fill` writes `len` bytes at most.
    pub(super) unsafe fn put(
        &mut self,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), LaneError> {
        if len > 0 {
            let into = self.claim(len)?;
            fill(into);
            self.word(self.layout.produced(self.rank)).store(self.position, Ordering::Release);
        }
        Ok(())
    }

    // ---- receiving ----

    /// What `peer` has sent; `expected` bytes are wanted. Anything else is noted, unless `shorter` says that less will do.
    #[inline]
    pub(super) fn message(&mut self, peer: usize, expected: usize) -> Result<Message, LaneError> {
        let (message, len) = self.any_message(peer)?;
        if len == expected {
            return Ok(message);
        }
        self.dismiss(peer, message, len, expected);
        Ok(Message::Wrong)
    }

    /// What `peer` has sent, and how many bytes that are.
    #[inline]
    pub(super) fn any_message(&mut self, peer: usize) -> Result<(Message, usize), LaneError> {
        let slot = self.slot(peer);
        // SAFETY: slots are inside the segment; `number` is atomic.
        let number = unsafe { &(*slot).number };
        let wanted = self.stamp();
        self.wait(peer, || number.load(Ordering::Acquire) == wanted)?;
        // SAFETY: the number says that the slot has been written; it stays so until this rank has finished.
        let len = unsafe { (&raw const (*slot).len).read() };
        // SAFETY: as above.
        let start = || unsafe { (&raw const (*slot).payload[0]).read() };
        Ok(if len <= INLINE_BYTES as u64 {
            (Message::Whole(unsafe_payload(slot)), len as usize)
        } else if len & IN_PIECES == 0 {
            (Message::Whole(self.in_ring(peer, start())), len as usize)
        } else {
            self.cursors[peer] = start();
            (Message::InPieces, (len & !IN_PIECES) as usize)
        })
    }

    /// Notes that a message is not what it should be, and lets its sender go on.
    #[cold]
    pub(super) fn dismiss(&mut self, peer: usize, message: Message, sent: usize, room: usize) {
        if matches!(message, Message::InPieces) {
            self.pass_over(peer);
        }
        self.wrong.get_or_insert(LaneError::Truncated { peer, sent_bytes: sent, room_bytes: room });
    }

    /// Lets `peer` send all pieces of its message without reading any.
    pub(super) fn pass_over(&mut self, peer: usize) {
        let slot = self.slot(peer);
        // SAFETY: as in `any_message`, which has seen this message.
        unsafe {
            if (&raw const (*slot).len).read() & IN_PIECES != 0 {
                self.cursors[peer] = (&raw const (*slot).payload[1]).read();
                self.acknowledge(peer);
            }
        }
    }

    /// The next piece of `peer`'s message, when it is there. Valid until [`acknowledge`](Lane::acknowledge).
    pub(super) fn take(&mut self, peer: usize, len: usize) -> Result<*const u8, LaneError> {
        let (at, end) = self.place(self.cursors[peer], len);
        let produced = self.word(self.layout.produced(peer));
        self.wait(peer, || produced.load(Ordering::Acquire) >= end)?;
        self.cursors[peer] = end;
        Ok(self.in_ring(peer, at))
    }

    /// Leaves out a piece of `peer`'s message.
    pub(super) fn skip(&mut self, peer: usize, len: usize) {
        if len > 0 {
            self.cursors[peer] = self.place(self.cursors[peer], len).1;
        }
    }

    /// Lets `peer` write over what has been taken and left out.
    pub(super) fn acknowledge(&mut self, peer: usize) {
        self.word(self.layout.progress(self.rank, peer))
            .store(self.cursors[peer], Ordering::Release);
    }

    // ---- the end ----

    /// Ends the collective. `small`: nobody has used a ring for it.
    #[inline]
    pub(super) fn finish(&mut self, small: bool) -> Result<(), LaneError> {
        self.ends[(self.number % SLOTS as u64) as usize] = self.position;
        self.number += 1;
        if !small || self.number - self.told >= QUIET {
            self.told = self.number;
            self.word(self.layout.done(self.rank)).store(self.number, Ordering::Release);
        }
        match self.wrong {
            None => Ok(()),
            Some(_) => Err(self.take_wrong()),
        }
    }

    #[cold]
    fn take_wrong(&mut self) -> LaneError {
        self.wrong.take().unwrap_or(LaneError::PeerGone { peer: self.rank })
    }
}

/// The payload of a slot.
#[inline]
fn unsafe_payload(slot: *mut Slot) -> *const u8 {
    // SAFETY: computes an address inside the slot.
    unsafe { (&raw const (*slot).payload).cast() }
}

/// Bytes of a part in a round of pieces.
#[inline]
pub(super) fn part_of(len: usize, round: usize, piece: usize) -> usize {
    len.saturating_sub(round * piece).min(piece)
}
