//! A message from device memory to another process of the same host, through a ring of pinned memory that both have
//! mapped ([`hetccl_gpu::Ring`]): the sender's device writes pieces, the receiver's device (or CPU) reads them.
//!
//! Counters in the ring tell each side how far the other is. Beside them, each side sends one word at its end, so that a
//! peer that is gone is noticed as for every other message.

use std::cell::RefCell;
use std::collections::VecDeque;

use hetccl_core::{Handle, MemoryType, Region, TransportError};
use hetccl_gpu::{Gpus, Order, RemoteRing, Ring, SLOTS};

/// Pieces are not cut shorter than this, so that each is worth its copy.
const LEAST_PIECE_BYTES: usize = 128 << 10;

/// How a message is cut: pieces of one length, and a shorter last one. The same on both sides.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    len_bytes: usize,
    piece_bytes: usize,
}

impl Pieces {
    /// As many pieces as there are slots, or as many as it takes.
    fn new(len_bytes: usize, slot_bytes: usize) -> Pieces {
        let even = len_bytes.div_ceil(SLOTS).next_multiple_of(256);
        let piece_bytes = even.max(LEAST_PIECE_BYTES).min(slot_bytes).max(1);
        Pieces { len_bytes, piece_bytes }
    }

    fn count(self) -> u64 {
        self.len_bytes.div_ceil(self.piece_bytes) as u64
    }

    fn of(self, region: Region, piece: u64) -> Region {
        let start = piece as usize * self.piece_bytes;
        region.slice(start, self.piece_bytes.min(self.len_bytes - start))
    }
}

/// The sender's side.
#[derive(Debug)]
pub(super) struct Sending {
    ring: Ring,
    pieces: Pieces,
    started: u64,
    filled: u64,
    /// Copies under way, oldest first.
    copies: VecDeque<Handle>,
}

impl Sending {
    pub(super) fn new(ring: Ring, len_bytes: usize) -> Sending {
        let pieces = Pieces::new(len_bytes, ring.slot_bytes());
        Sending { ring, pieces, started: 0, filled: 0, copies: VecDeque::new() }
    }

    /// Does what can be done now, which is nothing before the receiver has the ring; whether all pieces are in it.
    pub(super) fn advance(
        &mut self,
        gpus: &RefCell<Gpus>,
        from: Region,
    ) -> Result<bool, TransportError> {
        let mut gpus = gpus.borrow_mut();
        let count = self.pieces.count();
        if self.started == 0 && !self.ring.is_open() {
            return Ok(false);
        }
        while self.started < count && self.started < self.ring.drained() + SLOTS as u64 {
            let piece = self.pieces.of(from, self.started);
            let slot = self.ring.slot(self.started).slice(0, piece.len_bytes);
            let lane = gpus.lane(from)?;
            self.copies.push_back(gpus.copy(lane, Order::ToHost, piece, slot)?);
            self.started += 1;
        }
        let finished = take_finished(&mut self.copies, &mut gpus)?;
        if finished > 0 {
            self.filled += finished;
            self.ring.set_filled(self.filled);
        }
        Ok(self.filled == count)
    }

    /// The receiver has read everything.
    pub(super) fn end(mut self, gpus: &RefCell<Gpus>) {
        self.ring.advance(self.pieces.count());
        gpus.borrow_mut().put_ring(self.ring);
    }

    /// The receiver can't open the ring, so nothing has happened.
    pub(super) fn give_back(self, gpus: &RefCell<Gpus>) {
        gpus.borrow_mut().put_ring(self.ring);
    }

    /// Ends it where it is. The receiver may still read the ring, which therefore is lost.
    pub(super) fn give_up(self, gpus: &RefCell<Gpus>) {
        let mut gpus = gpus.borrow_mut();
        finish_all(self.copies, &mut gpus);
        gpus.lose_ring(self.ring);
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(super) struct Receiving {
    ring: RemoteRing,
    pieces: Pieces,
    started: u64,
    drained: u64,
    copies: VecDeque<Handle>,
}

impl Receiving {
    pub(super) fn new(ring: RemoteRing, len_bytes: usize) -> Receiving {
        let pieces = Pieces::new(len_bytes, ring.slot_bytes());
        Receiving { ring, pieces, started: 0, drained: 0, copies: VecDeque::new() }
    }

    /// Does what can be done now; whether all pieces are in place.
    pub(super) fn advance(
        &mut self,
        gpus: &RefCell<Gpus>,
        into: Region,
    ) -> Result<bool, TransportError> {
        let mut gpus = gpus.borrow_mut();
        let before = self.drained;
        while self.started < self.ring.filled() {
            let piece = self.pieces.of(into, self.started);
            if piece.memory == MemoryType::Host {
                // SAFETY: the region is the message's, which whoever started it vouches for.
                unsafe { self.ring.read(self.started, piece) };
                self.drained += 1;
            } else {
                let slot = self.ring.slot(self.started).slice(0, piece.len_bytes);
                let lane = gpus.lane(into)?;
                self.copies.push_back(gpus.copy(lane, Order::FromHost, slot, piece)?);
            }
            self.started += 1;
        }
        self.drained += take_finished(&mut self.copies, &mut gpus)?;
        if self.drained > before {
            self.ring.set_drained(self.drained);
        }
        Ok(self.drained == self.pieces.count())
    }

    /// The message is over, well or not.
    pub(super) fn end(self, gpus: &RefCell<Gpus>) {
        let mut gpus = gpus.borrow_mut();
        finish_all(self.copies, &mut gpus);
        gpus.close_ring(&self.ring);
    }
}

/// Takes the copies out that have finished, oldest first; how many.
fn take_finished(copies: &mut VecDeque<Handle>, gpus: &mut Gpus) -> Result<u64, TransportError> {
    let mut finished = 0;
    while let Some(&copy) = copies.front() {
        match gpus.test(copy) {
            Ok(false) => break,
            ended => {
                copies.pop_front();
                ended?;
                finished += 1;
            }
        }
    }
    Ok(finished)
}

/// Memory may be used again only after the copies.
fn finish_all(copies: VecDeque<Handle>, gpus: &mut Gpus) {
    for copy in copies {
        let _ = gpus.finish(copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_message() {
        let slot_bytes = 1 << 20;
        for len_bytes in [1, 4096, 131_072, 131_073, 600_001, 4 << 20, (64 << 20) + 7] {
            let pieces = Pieces::new(len_bytes, slot_bytes);
            let whole = Region { len_bytes, ..Region::default() };
            let lengths: Vec<usize> =
                (0..pieces.count()).map(|piece| pieces.of(whole, piece).len_bytes).collect();
            assert_eq!(lengths.iter().sum::<usize>(), len_bytes);
            assert!(lengths.iter().all(|&len| len > 0 && len <= slot_bytes), "{lengths:?}");
        }
        assert_eq!(Pieces::new(100_000, slot_bytes).count(), 1);
    }
}
