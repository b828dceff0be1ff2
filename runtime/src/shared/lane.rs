//! One rank's way through a segment: slots, rings and the rules by which they are used again.
//!
//! A rank's ring is a stream of bytes with positions that only grow; position p lies at p modulo the ring's size, and a piece
//! never wraps: it starts at the ring's beginning instead. Writer and reader follow the same rule, so a reader that knows
//! where a message begins and how it is cut finds every piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hetccl_core::Call;

use super::layout::{INLINE_BYTES, LINE, Part, SLOTS};
use super::segment::Segment;
use crate::watch::{CallWord, Trouble, Watch};

/// Collectives without a word on how far this rank is, when they leave nothing in a ring.
const QUIET: u64 = SLOTS as u64 / 4;

/// In a slot's length: the message comes in pieces.
pub(super) const IN_PIECES: u64 = 1 << 63;

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
pub(super) struct Slot {
    /// The collective's number + 1 and what it is (the stamp), when the rest is there.
    pub(super) number: AtomicU64,
    /// Bytes of the message, with [`IN_PIECES`].
    pub(super) len: u64,
    /// The message itself, or where it starts and ends in the ring.
    pub(super) payload: [u64; INLINE_BYTES / 8],
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
    pub(super) fn include(self, rank: usize) -> bool {
        match self {
            Readers::All => true,
            Readers::One(only) => only == rank,
        }
    }
}

/// This rank's end of a part of a segment. One collective at a time; `W` is how it waits for the others.
#[derive(Debug)]
pub struct Lane<W> {
    pub(super) segment: Arc<Segment>,
    pub(super) layout: Part,
    pub(super) way: W,
    pub(super) rank: usize,
    /// The number of the collective under way.
    pub(super) number: u64,
    /// Up to where this rank has filled its ring.
    pub(super) position: u64,
    /// Who reads the message in pieces that this rank sends, and where it began.
    pub(super) readers: Readers,
    pub(super) began_at: u64,
    /// Where the ring stood after each of the last collectives.
    pub(super) ends: [u64; SLOTS],
    /// What is known of the others: collectives that all have finished, and up to where this rank's ring is free.
    pub(super) all_done: u64,
    pub(super) free_to: u64,
    /// Finished collectives as the others have been told.
    told: u64,
    /// Where this rank stands in each other rank's message.
    pub(super) cursors: Vec<u64>,
    pub(super) wrong: Option<LaneError>,
    /// What the collective under way is, in the upper half of the stamp; 0: not compared.
    pub(super) call: u64,
    /// Who looks after the other ranks.
    pub(super) watch: Option<Arc<Watch>>,
    pids: Vec<i32>,
    /// Partial results of reductions.
    pub(super) scratch: Vec<u64>,
    pub(super) operands: Vec<*const u8>,
}

// SAFETY: pointers are into the segment, or set and used within one collective.
unsafe impl<W: Send> Send for Lane<W> {}

impl<W> Lane<W> {
    /// The end of `rank`. `pids` are the processes of all ranks, where they can be asked for (empty: they can't).
    pub(super) fn at(
        segment: Arc<Segment>,
        layout: Part,
        rank: usize,
        pids: Vec<i32>,
        way: W,
    ) -> Lane<W> {
        let chunk_bytes = layout.ring_bytes() / 8;
        Lane {
            layout,
            way,
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

    /// Says what the next collective is; ranks that say different things get an error.
    #[inline]
    pub fn next_is(&mut self, call: CallWord) {
        // A lane has at most 64 ranks, so a root takes 7 bits: nothing is lost.
        self.call = (call.0 & 0xffff_ffff) << 32;
    }

    /// What a slot of the collective under way says first.
    #[inline]
    pub(super) fn stamp(&self) -> u64 {
        (self.number + 1) & u64::from(u32::MAX) | self.call
    }

    /// Collectives finished so far; equal on all ranks between collectives.
    pub fn finished(&self) -> u64 {
        self.number
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
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the layout's offsets are aligned and inside the segment, which lives as long as `self`.
        unsafe { &*self.segment.base().add(offset).cast::<AtomicU64>() }
    }

    #[inline]
    pub(super) fn slot(&self, rank: usize) -> *mut Slot {
        let index = (self.number % SLOTS as u64) as usize;
        // SAFETY: inside the segment.
        unsafe { self.segment.base().add(self.layout.slots(rank)).cast::<Slot>().add(index) }
    }

    #[inline]
    pub(super) fn in_ring(&self, rank: usize, position: u64) -> *mut u8 {
        let offset = position as usize & (self.layout.ring_bytes() - 1);
        // SAFETY: inside the segment.
        unsafe { self.segment.base().add(self.layout.ring(rank) + offset) }
    }

    /// Where a piece of `len` bytes goes that is written at `position` or after it, and where the next may begin.
    #[inline]
    pub(super) fn place(&self, position: u64, len: usize) -> (u64, u64) {
        let ring = self.layout.ring_bytes() as u64;
        let room = ring - (position & (ring - 1));
        let at = if len as u64 > room { position + room } else { position };
        (at, (at + len as u64).next_multiple_of(LINE as u64))
    }

    #[cold]
    pub(super) fn gone(&self, peer: usize) -> Option<LaneError> {
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

/// Whether lanes whose reductions take elements up to `most_element_bytes` take a call.
pub(super) fn is_for_lanes(call: &Call, element_bytes: usize, most_element_bytes: usize) -> bool {
    call.group.remote_size.is_none()
        && call.neighbours.is_none()
        && (!call.collective.reduces() || element_bytes <= most_element_bytes)
}

/// The payload of a slot.
#[inline]
pub(super) fn payload_of(slot: *mut Slot) -> *const u8 {
    // SAFETY: computes an address inside the slot.
    unsafe { (&raw const (*slot).payload).cast() }
}

/// Bytes of a part in a round of pieces.
#[inline]
pub(super) fn part_of(len: usize, round: usize, piece: usize) -> usize {
    len.saturating_sub(round * piece).min(piece)
}
