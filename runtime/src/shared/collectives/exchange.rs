//! Messages in slots and rings: what a rank writes, and what it reads of the others'.

use std::sync::atomic::Ordering;

use super::{Lane, both};
use crate::shared::lane::{IN_PIECES, LaneError, Message, Readers, part_of, payload_of};
use crate::shared::layout::{INLINE_BYTES, LINE, SLOTS};

#[both]
impl Lane {
    // ---- sending ----

    /// Waits until this rank's slot is free.
    #[inline]
    async fn claim_slot(&mut self) -> Result<(), LaneError> {
        if self.number - self.all_done >= SLOTS as u64 {
            self.wait_for_slot().await
        } else {
            Ok(())
        }
    }

    #[cold]
    async fn wait_for_slot(&mut self) -> Result<(), LaneError> {
        let needed = self.number + 1 - SLOTS as u64;
        let mut least = u64::MAX;
        for peer in (0..self.ranks()).filter(|&peer| peer != self.rank) {
            let done = self.word(self.layout.done(peer));
            self.wait(peer, || done.load(Ordering::Acquire) >= needed).await?;
            least = least.min(done.load(Ordering::Acquire));
        }
        self.all_done = least;
        Ok(())
    }

    /// Room for `len` bytes in the ring.
    #[inline]
    async fn claim(&mut self, len: usize) -> Result<*mut u8, LaneError> {
        let (at, end) = self.place(self.position, len);
        // Peers that dismiss a message go past all of it at once.
        if end.saturating_sub(self.free_to) > self.layout.ring_bytes() as u64 {
            self.wait_for_room(end - self.layout.ring_bytes() as u64).await?;
        }
        self.position = end;
        Ok(self.in_ring(self.rank, at))
    }

    /// Waits until all others have gone past `needed`.
    #[cold]
    async fn wait_for_room(&mut self, needed: u64) -> Result<(), LaneError> {
        let mut free_to = u64::MAX;
        for peer in (0..self.ranks()).filter(|&peer| peer != self.rank) {
            self.wait(peer, || self.gone_past(peer) >= needed).await?;
            free_to = free_to.min(self.gone_past(peer));
        }
        self.free_to = free_to;
        Ok(())
    }

    /// Up to where `peer` needs nothing of this rank's ring any more.
    pub(super) fn gone_past(&self, peer: usize) -> u64 {
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
    pub(super) async unsafe fn send(
        &mut self,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), LaneError> {
        self.claim_slot().await?;
        self.readers = Readers::All;
        let slot = self.slot(self.rank);
        // SAFETY: the slot is this rank's, and all have finished the collective that had it before.
        unsafe {
            (&raw mut (*slot).len).write(len as u64);
            if len <= INLINE_BYTES {
                fill((&raw mut (*slot).payload).cast());
            } else {
                let into = self.claim(len).await?;
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
    pub(super) async fn announce(
        &mut self,
        total: usize,
        first: usize,
        parts: impl Iterator<Item = usize> + Clone,
        piece: usize,
        readers: Readers,
    ) -> Result<(), LaneError> {
        self.claim_slot().await?;
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
    pub(super) async unsafe fn put(
        &mut self,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), LaneError> {
        if len > 0 {
            let into = self.claim(len).await?;
            fill(into);
            self.word(self.layout.produced(self.rank)).store(self.position, Ordering::Release);
        }
        Ok(())
    }

    // ---- receiving ----

    /// What `peer` has sent; `expected` bytes are wanted. Anything else is noted, unless `shorter` says that less will do.
    #[inline]
    pub(super) async fn message(
        &mut self,
        peer: usize,
        expected: usize,
    ) -> Result<Message, LaneError> {
        let (message, len) = self.any_message(peer).await?;
        if len == expected {
            return Ok(message);
        }
        self.dismiss(peer, message, len, expected);
        Ok(Message::Wrong)
    }

    /// What `peer` has sent, and how many bytes that are.
    #[inline]
    pub(super) async fn any_message(&mut self, peer: usize) -> Result<(Message, usize), LaneError> {
        let slot = self.slot(peer);
        // SAFETY: slots are inside the segment; `number` is atomic.
        let number = unsafe { &(*slot).number };
        let wanted = self.stamp();
        self.wait(peer, || number.load(Ordering::Acquire) == wanted).await?;
        // SAFETY: the number says that the slot has been written; it stays so until this rank has finished.
        let len = unsafe { (&raw const (*slot).len).read() };
        // SAFETY: as above.
        let start = || unsafe { (&raw const (*slot).payload[0]).read() };
        Ok(if len <= INLINE_BYTES as u64 {
            (Message::Whole(payload_of(slot)), len as usize)
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
    pub(super) async fn take(&mut self, peer: usize, len: usize) -> Result<*const u8, LaneError> {
        let (at, end) = self.place(self.cursors[peer], len);
        let produced = self.word(self.layout.produced(peer));
        self.wait(peer, || produced.load(Ordering::Acquire) >= end).await?;
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
}
