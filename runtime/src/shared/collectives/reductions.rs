//! The collectives that reduce.
//!
//! Contributions are combined from the last rank to the first, so ranks that compute the same result get the same bits, and
//! operations that do not commute see rank order.

use std::ptr::copy_nonoverlapping as copy;

use super::{Lane, both};
use crate::shared::fold::Fold;
use crate::shared::lane::{LaneError, Message, Readers, part_of};
use crate::shared::layout::INLINE_BYTES;
use crate::shared::short::copy_short;

/// Bytes per rank up to which every rank of an allreduce reads everything itself.
const DIRECT_BYTES: usize = 16 << 10;
/// Bytes up to which every rank of a scan reads all ranks before it.
const DIRECT_SCAN_BYTES: usize = 8 << 10;

#[both]
impl Lane {
    /// The root gets the reduction of all. `input` is this rank's contribution; the root's `output` may be the same memory.
    ///
    /// # Errors
    /// Ranks differ in length; a process that has ended.
    ///
    /// # Safety
    /// The buffers hold `count` elements; `output` is the root's only.
    pub async unsafe fn reduce(
        &mut self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        fold: &impl Fold,
        root: usize,
    ) -> Result<(), LaneError> {
        let bytes = count * fold.element_bytes();
        let whole = bytes <= self.chunk_bytes();
        let piece = self.elements_bytes(1, fold);
        // SAFETY: the caller's promise.
        unsafe {
            if self.rank() != root {
                if whole {
                    self.send(bytes, |into| copy_short(input, into, bytes)).await?;
                } else {
                    let readers = Readers::One(root);
                    self.announce(bytes, 0, std::iter::once(bytes), piece, readers).await?;
                    for round in 0..bytes.div_ceil(piece) {
                        self.put_part((input, bytes), round, piece).await?;
                    }
                }
                return self.finish(bytes <= INLINE_BYTES);
            }
            let right = self.collect(0, self.ranks(), input, bytes).await?;
            if !right {
                return self.finish(false);
            }
            if whole {
                self.combine(output, count, fold);
                return self.finish(bytes <= INLINE_BYTES);
            }
            for round in 0..bytes.div_ceil(piece) {
                let (at, len) = (round * piece, part_of(bytes, round, piece));
                self.take_all(0, self.ranks(), input.add(at), len).await?;
                self.combine(output.add(at), len / fold.element_bytes(), fold);
                self.others().for_each(|peer| self.acknowledge(peer));
            }
        }
        self.finish(false)
    }

    /// Everybody gets the reduction of all; `output` may be the same memory as `input`.
    ///
    /// # Errors
    /// As for [`reduce`](Lane::reduce).
    ///
    /// # Safety
    /// The buffers hold `count` elements.
    #[inline]
    pub async unsafe fn allreduce(
        &mut self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        fold: &impl Fold,
    ) -> Result<(), LaneError> {
        let bytes = count * fold.element_bytes();
        // SAFETY: the caller's promise.
        unsafe {
            if bytes > DIRECT_BYTES.min(self.chunk_bytes()) {
                return self.allreduce_by_intervals(input, output, count, fold).await;
            }
            self.send(bytes, |into| copy_short(input, into, bytes)).await?;
            if self.collect(0, self.ranks(), input, bytes).await? {
                self.combine(output, count, fold);
            }
        }
        self.finish(bytes <= INLINE_BYTES)
    }

    /// Each rank reduces an interval and hands the result to the others. In each round a rank writes what belongs to the
    /// others' intervals, reduces its own piece, writes that, and reads the others' results.
    ///
    /// # Safety
    /// As for [`allreduce`](Lane::allreduce).
    #[inline(never)]
    async unsafe fn allreduce_by_intervals(
        &mut self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        fold: &impl Fold,
    ) -> Result<(), LaneError> {
        let (ranks, me, element) = (self.ranks(), self.rank(), fold.element_bytes());
        let bytes = count * element;
        let start = |r: usize| count * r / ranks * element;
        let interval = |r: usize| start(r + 1) - start(r);
        let piece = self.elements_bytes(2 * ranks, fold);
        let rounds = (0..ranks).map(interval).max().unwrap_or(0).div_ceil(piece);
        let parts = self.others().chain([me]).map(interval);
        self.announce(bytes, 0, parts, piece, Readers::All).await?;
        let mut right = true;
        for peer in self.others() {
            let message = self.message(peer, bytes).await?;
            right &= matches!(message, Message::InPieces);
        }
        if !right {
            // Those who expect what this rank has announced would wait for ever.
            return self.pretend_intervals(rounds, interval, piece).await;
        }
        let len_of = |r: usize, round: usize| part_of(interval(r), round, piece);
        // SAFETY: the caller's promise; intervals and rounds tile the buffers.
        unsafe {
            for peer in self.others() {
                self.put_part((input.add(start(peer)), interval(peer)), 0, piece).await?;
            }
            for round in 0..rounds {
                let (at, len) = (start(me) + round * piece, len_of(me, round));
                self.operands.clear();
                for peer in 0..ranks {
                    let operand = match peer {
                        _ if peer == me => input.add(at),
                        _ => {
                            self.take_interval(peer, me, len_of(me, round), round, &len_of).await?
                        }
                    };
                    self.operands.push(operand);
                }
                if len > 0 {
                    self.combine(output.add(at), len / element, fold);
                }
                self.put(len, |into| copy(output.add(at), into, len)).await?;
                if round + 1 < rounds {
                    for peer in self.others() {
                        let run = (input.add(start(peer)), interval(peer));
                        self.put_part(run, round + 1, piece).await?;
                    }
                }
                for peer in self.others() {
                    let len = len_of(peer, round);
                    if len > 0 {
                        let from = self.take(peer, len).await?;
                        copy(from, output.add(start(peer) + round * piece), len);
                    }
                    self.acknowledge(peer);
                }
            }
        }
        self.finish(false)
    }

    /// This rank's piece of what `peer` writes in a round for the intervals of the others.
    async fn take_interval(
        &mut self,
        peer: usize,
        me: usize,
        len: usize,
        round: usize,
        len_of: &impl Fn(usize, usize) -> usize,
    ) -> Result<*const u8, LaneError> {
        let ranks = self.ranks();
        let mut taken = std::ptr::null();
        for k in 1..ranks {
            let to = (peer + k) % ranks;
            if to == me && len > 0 {
                taken = self.take(peer, len).await?;
            } else {
                self.skip(peer, len_of(to, round));
            }
        }
        Ok(taken)
    }

    /// Writes as many pieces as announced, whatever is in them, and reads nothing.
    #[cold]
    async fn pretend_intervals(
        &mut self,
        rounds: usize,
        interval: impl Fn(usize) -> usize,
        piece: usize,
    ) -> Result<(), LaneError> {
        self.others().for_each(|peer| self.pass_over(peer));
        for round in 0..rounds {
            for r in self.others().chain([self.rank()]) {
                // SAFETY: nothing is written.
                unsafe { self.put(part_of(interval(r), round, piece), |_| ()).await }?;
            }
        }
        self.finish(false)
    }

    /// Everybody gets the reduction of its own and all lower ranks' contributions, or (`inclusive` false) of the lower
    /// ranks' alone, where rank 0's `output` is left alone.
    ///
    /// # Errors
    /// As for [`reduce`](Lane::reduce).
    ///
    /// # Safety
    /// The buffers hold `count` elements; they may be the same memory.
    pub async unsafe fn scan(
        &mut self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        fold: &impl Fold,
        inclusive: bool,
    ) -> Result<(), LaneError> {
        let bytes = count * fold.element_bytes();
        let me = self.rank();
        // SAFETY: the caller's promise.
        unsafe {
            if bytes > DIRECT_SCAN_BYTES.min(self.chunk_bytes()) {
                return self.scan_in_line(input, output, count, fold, inclusive).await;
            }
            if me + 1 < self.ranks() {
                self.send(bytes, |into| copy_short(input, into, bytes)).await?;
            }
            if self.collect(0, if inclusive { me + 1 } else { me }, input, bytes).await? {
                self.combine(output, count, fold);
            }
        }
        self.finish(bytes <= INLINE_BYTES)
    }

    /// Each rank hands its result to the next, piece by piece.
    ///
    /// # Safety
    /// As for [`scan`](Lane::scan).
    #[inline(never)]
    async unsafe fn scan_in_line(
        &mut self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        fold: &impl Fold,
        inclusive: bool,
    ) -> Result<(), LaneError> {
        let element = fold.element_bytes();
        let (me, last, bytes) = (self.rank(), self.ranks() - 1, count * element);
        let piece = self.elements_bytes(1, fold);
        if me < last {
            let readers = Readers::One(me + 1);
            self.announce(bytes, 0, std::iter::once(bytes), piece, readers).await?;
        }
        let mut right = true;
        if me > 0 {
            let message = self.message(me - 1, bytes).await?;
            right = matches!(message, Message::InPieces);
        }
        for round in 0..bytes.div_ceil(piece) {
            let (at, len) = (round * piece, part_of(bytes, round, piece));
            // SAFETY: the caller's promise; rounds tile the buffers.
            unsafe {
                let (own, out) = (input.add(at), output.add(at));
                if me == 0 || !right {
                    self.put(if me < last { len } else { 0 }, |into| copy(own, into, len)).await?;
                    if inclusive && own != out.cast_const() {
                        copy(own, out, len);
                    }
                    continue;
                }
                let before = self.take(me - 1, len).await?;
                let elements = len / element;
                if inclusive {
                    fold.fold(before, own, out, elements);
                    self.put(if me < last { len } else { 0 }, |into| copy(out, into, len)).await?;
                } else {
                    let sent = if me < last { len } else { 0 };
                    self.put(sent, |into| fold.fold(before, own, into, elements)).await?;
                    copy(before, out, len);
                }
                self.acknowledge(me - 1);
            }
        }
        self.finish(false)
    }

    /// Everybody gets its block of the reduction of all; `elements(rank)` is the length of each rank's, the same on all.
    /// `output` may be memory of `input`'s, and has room for the largest block where it is.
    ///
    /// # Errors
    /// As for [`reduce`](Lane::reduce).
    ///
    /// # Safety
    /// `input` holds all blocks, one after the other, `output` this rank's.
    pub async unsafe fn reduce_scatter(
        &mut self,
        input: *const u8,
        output: *mut u8,
        elements: impl Fn(usize) -> usize,
        fold: &impl Fold,
    ) -> Result<(), LaneError> {
        let (ranks, me, element) = (self.ranks(), self.rank(), fold.element_bytes());
        let total: usize = (0..ranks).map(&elements).sum::<usize>() * element;
        let block = |r: usize| elements(r) * element;
        let start = |r: usize| (0..r).map(block).sum::<usize>();
        let own = block(me);
        // SAFETY: the caller's promise; blocks tile the input.
        unsafe {
            // In place the result would overwrite what is still to be read.
            let aside = output.cast_const().addr() >= input.addr()
                && output.addr() < input.addr() + total
                && output.cast_const() != input.add(start(me));
            let mut result = if aside { vec![0u8; own] } else { Vec::new() };
            let into = if aside { result.as_mut_ptr() } else { output };
            // Every rank sends all blocks but its own. All know whether any of that is longer than a chunk.
            if total <= self.chunk_bytes() {
                let sent = total - own;
                let before = start(me);
                let after = total - before - own;
                self.send(sent, |slot| {
                    // From the next rank's on, as everywhere.
                    copy_short(input.add(before + own), slot, after);
                    copy_short(input, slot.add(after), before);
                })
                .await?;
                self.operands.clear();
                let mut right = true;
                for peer in 0..ranks {
                    let operand = match peer {
                        _ if peer == me => input.add(before),
                        _ => match self.message(peer, total - block(peer)).await? {
                            // This rank's block, in the peer's order.
                            Message::Whole(at) if me > peer => {
                                at.add(before - start(peer) - block(peer))
                            }
                            Message::Whole(at) => {
                                at.add(total - start(peer) - block(peer) + before)
                            }
                            _ => {
                                right = false;
                                continue;
                            }
                        },
                    };
                    self.operands.push(operand);
                }
                if right && own > 0 {
                    self.combine(into, elements(me), fold);
                    if aside {
                        copy(result.as_ptr(), output, own);
                    }
                }
                return self.finish(total <= INLINE_BYTES);
            }
            let piece = self.elements_bytes(ranks - 1, fold);
            let parts = self.others().map(block);
            self.announce(total - own, 0, parts, piece, Readers::All).await?;
            let mut right = true;
            for peer in self.others() {
                let message = self.message(peer, total - block(peer)).await?;
                right &= matches!(message, Message::InPieces);
            }
            if !right {
                self.others().for_each(|peer| self.pass_over(peer));
            }
            let rounds = (0..ranks).map(block).max().unwrap_or(0).div_ceil(piece);
            let len_of = |r: usize, round: usize| part_of(block(r), round, piece);
            for round in 0..rounds {
                for peer in self.others() {
                    self.put_part((input.add(start(peer)), block(peer)), round, piece).await?;
                }
                if !right {
                    continue;
                }
                let (at, len) = (round * piece, len_of(me, round));
                self.operands.clear();
                for peer in 0..ranks {
                    let operand = match peer {
                        _ if peer == me => input.add(start(me) + at),
                        _ => self.take_interval(peer, me, len, round, &len_of).await?,
                    };
                    self.operands.push(operand);
                }
                if len > 0 {
                    self.combine(into.add(at), len / element, fold);
                }
                self.others().for_each(|peer| self.acknowledge(peer));
            }
            if aside && right {
                copy(result.as_ptr(), output, own);
            }
        }
        self.finish(false)
    }

    // ---- pieces of them ----

    /// Bytes per piece, in whole elements.
    fn elements_bytes(&self, parts: usize, fold: &impl Fold) -> usize {
        let element = fold.element_bytes().max(1);
        (self.piece_bytes(parts) / element).max(1) * element
    }

    /// The contributions of ranks `from..to`, all `bytes` long, as operands; of those that come in pieces nothing yet.
    /// Whether all are right.
    #[inline]
    async fn collect(
        &mut self,
        from: usize,
        to: usize,
        own: *const u8,
        bytes: usize,
    ) -> Result<bool, LaneError> {
        self.operands.clear();
        let mut right = true;
        for peer in from..to {
            if peer == self.rank() {
                self.operands.push(own);
                continue;
            }
            match self.message(peer, bytes).await? {
                Message::Whole(at) => self.operands.push(at),
                Message::InPieces => {}
                Message::Wrong => right = false,
            }
        }
        Ok(right)
    }

    /// The next piece of each contribution of ranks `from..to`, as operands.
    async fn take_all(
        &mut self,
        from: usize,
        to: usize,
        own: *const u8,
        len: usize,
    ) -> Result<(), LaneError> {
        self.operands.clear();
        for peer in from..to {
            let operand = if peer == self.rank() { own } else { self.take(peer, len).await? };
            self.operands.push(operand);
        }
        Ok(())
    }

    /// Reduces the operands, from the last to the first. The result may go where one of them is: it is written when all have
    /// been read.
    ///
    /// # Safety
    /// Operands and `into` hold `count` elements, at most a chunk; operands that are not `into` don't overlap it.
    #[inline]
    unsafe fn combine(&mut self, into: *mut u8, count: usize, fold: &impl Fold) {
        let operands = &self.operands[..];
        // SAFETY: the caller's promise; the scratch memory is a chunk.
        unsafe {
            match *operands {
                [] => {}
                [only] => {
                    if only != into.cast_const() {
                        copy_short(only, into, count * fold.element_bytes());
                    }
                }
                [left, right] => fold.fold(left, right, into, count),
                [first, ref middle @ .., left, right] => {
                    let partial = self.scratch.as_mut_ptr().cast::<u8>();
                    fold.fold(left, right, partial, count);
                    for &operand in middle.iter().rev() {
                        fold.fold(operand, partial, partial, count);
                    }
                    fold.fold(first, partial, into, count);
                }
            }
        }
    }
}
