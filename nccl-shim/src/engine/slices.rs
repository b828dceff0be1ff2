//! Large collectives in slices of the vector, so that what they need beside the program's buffers stays small.
//!
//! ```text
//! allreduce, reduce    elements k c to (k + 1) c of every rank
//! reduce_scatter       those of every block, put together in a block of memory of their own
//! ```
//!
//! Slices are started in order, so many at a time that one can move while another is reduced. Collectives that only move
//! bytes need nothing that grows with them.

use std::collections::VecDeque;

use hetccl_core::{Address, Collective as Kind, MemoryType, Region};
use hetccl_runtime::gpu::{Block, Order};

use super::Engine;
use super::collective::Collective;
use crate::Failure;
use crate::operation::{self, CollectiveWork};

/// Most bytes of a slice. Each costs the same number of steps on devices, so short ones are slow, and long ones want scratch memory.
const SLICE_BYTES: usize = 4 << 20;
/// The same where a slice is put together from blocks, of all of them, since that takes as much memory again.
const GATHERED_BYTES: usize = 2 << 20;
/// The same of a rank that is alone.
const ALONE_BYTES: usize = 128 << 10;
/// Slices under way at a time.
const WINDOW: usize = 2;

/// A collective in slices.
#[derive(Debug)]
pub(super) struct Slices {
    work: CollectiveWork,
    /// Elements of a slice, of each block.
    len: usize,
    /// The first element that has not been started.
    next: usize,
    under_way: VecDeque<(Collective, Option<Block>)>,
}

impl Slices {
    pub(super) fn new(work: CollectiveWork, size: usize) -> Slices {
        Slices { len: slice_len(&work, size), work, next: 0, under_way: VecDeque::new() }
    }

    /// Whether a collective needs memory that grows with it.
    pub(super) fn are_wanted(work: &CollectiveWork, size: usize) -> bool {
        let reduces =
            matches!(work.collective, Kind::Allreduce | Kind::Reduce | Kind::ReduceScatterBlock);
        // Alone, a rank needs memory only to scale what it has.
        let takes_memory = size > 1 || !work.is_plain();
        reduces && takes_memory && slice_len(work, size) < work.count
    }

    /// What has been started and has not ended.
    pub(super) fn under_way(self) -> impl Iterator<Item = Collective> {
        self.under_way.into_iter().map(|(collective, _)| collective)
    }
}

/// Elements of a slice, of each block.
fn slice_len(work: &CollectiveWork, size: usize) -> usize {
    let (blocks, slice_bytes) = match work.collective {
        _ if size == 1 => (1, ALONE_BYTES),
        Kind::ReduceScatterBlock => (size, GATHERED_BYTES),
        _ => (1, SLICE_BYTES),
    };
    (slice_bytes / (blocks * work.element.size_bytes())).max(1)
}

impl Engine {
    /// Does what can be done now; whether all slices have ended.
    pub(super) fn advance_slices(&mut self, slices: &mut Slices) -> Result<bool, Failure> {
        loop {
            // Averages and scaled sums have a block more each.
            let window = if slices.work.is_plain() { WINDOW } else { 1 };
            while slices.under_way.len() < window && slices.next < slices.work.count {
                let begun = self.begin_slice(slices)?;
                slices.under_way.push_back(begun);
            }
            for (collective, _) in &mut slices.under_way {
                self.advance_collective(collective)?;
            }
            let Some((first, _)) = slices.under_way.front_mut() else { return Ok(true) };
            if !self.advance_collective(first)? {
                return Ok(false);
            }
            if let Some((_, Some(block))) = slices.under_way.pop_front() {
                self.process.gpus().put(block);
            }
        }
    }

    fn begin_slice(&mut self, slices: &mut Slices) -> Result<(Collective, Option<Block>), Failure> {
        let element_bytes = slices.work.element.size_bytes();
        let (first, count) = (slices.next, slices.len.min(slices.work.count - slices.next));
        slices.next += count;
        let offset = first * element_bytes;
        let at = |address: usize| if address == 0 { 0 } else { address + offset };
        let (send, recv) = (at(slices.work.send), at(slices.work.recv));
        let mut work = CollectiveWork { count, send, recv, ..slices.work.clone() };
        let mut block = None;
        if work.collective == Kind::ReduceScatterBlock && self.size > 1 {
            let stride = slices.work.count * element_bytes;
            let gathered = self.gather_blocks(send, stride, count * element_bytes)?;
            work.send = gathered.whole().address.0;
            block = Some(gathered);
        }
        let prepared = work.prepare(self.process.gpus(), self.rank, self.size)?;
        Ok((self.begin_collective(&work, prepared)?, block))
    }

    /// A part of every rank's block, one after the other, in memory of the device.
    fn gather_blocks(
        &mut self,
        from: usize,
        stride: usize,
        len_bytes: usize,
    ) -> Result<Block, Failure> {
        let size = self.size;
        let gpus = self.process.gpus();
        let part = operation::region(gpus, from, len_bytes)?;
        let lane = match (part.memory, gpus.any_lane()) {
            (MemoryType::Host, Some(lane)) => lane,
            _ => gpus.lane(part)?,
        };
        let block = gpus.take_device(lane, size * len_bytes)?;
        for index in 0..size {
            let from = Region { address: Address(from + index * stride), ..part };
            let into = block.whole().slice(index * len_bytes, len_bytes);
            gpus.queue_copy(lane, Order::Own, from, into)?;
        }
        Ok(block)
    }
}
