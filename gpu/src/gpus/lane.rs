//! Lanes: a context with streams of the library's own, and the memory that is kept for them.

use std::mem;
use std::time::{Duration, Instant};

use hetccl_core::{MemoryType, Pool};

use crate::driver::{Context, Driver, Event, Stream};
use crate::kernels::Kernels;
use crate::marks::{Mark, Marks};
use crate::ring::Ring;
use crate::spare;

#[cfg(doc)]
use super::Gpus;

/// What a copy waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Everything that the program has queued on the default stream and on streams ordered with it.
    AfterApplication,
    /// Only what was queued here before, for the same device.
    Own,
    /// Only earlier copies from the device to host memory. Runs beside the others.
    ToHost,
    /// Only earlier copies from host memory to the device. Runs beside the others.
    FromHost,
    /// Only what was queued so before: collectives of the vendor's library, and copies around them. Runs beside the others; see
    /// [`Gpus::library_stream`].
    Library,
}

/// A context with a queue of the library's own in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub(crate) usize);

/// What belongs to a lane.
#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) driver: usize,
    pub(super) context: Context,
    pub(super) stream: Stream,
    /// For copies to and from host memory, which two engines of the device do at once.
    pub(super) to_host: Stream,
    pub(super) from_host: Stream,
    /// For the vendor's library; made when there is one.
    pub(super) library: Option<Stream>,
    pub(super) idle_events: Vec<Event>,
    /// Addresses of pinned memory and of device memory that is not in use.
    pub(super) pinned: Pool<usize>,
    pub(super) device: Pool<usize>,
    pub(super) rings: Vec<Ring>,
    /// Rings in existence, in use or not.
    pub(super) made_rings: usize,
    pub(super) kernels: Kernels,
    pub(super) memory: MemoryType,
    /// The device's number in its driver.
    pub(super) device_number: u32,
    /// The caller orders its work with the program's; see [`Gpus::ordered_by_caller`].
    pub(super) ordered: bool,
    /// Words that the streams write, where the context is the library's own.
    pub(super) marks: Option<Marks>,
    /// Pieces of work queued on `stream`, and how many of them are known to have finished.
    pub(super) queued: u64,
    pub(super) finished: u64,
}

impl LaneState {
    /// Waits a while for all work of the lane's streams; whether it is over.
    pub(super) fn ends_soon(&mut self, driver: &dyn Driver) -> bool {
        const PATIENCE: Duration = Duration::from_millis(100);
        let begun = Instant::now();
        let context = self.context;
        let own = [
            (Order::Own, self.stream),
            (Order::ToHost, self.to_host),
            (Order::FromHost, self.from_host),
        ];
        let library = self.library.map(|stream| (Order::Library, stream));
        own.into_iter().chain(library).all(|(order, stream)| {
            let mark = match &mut self.marks {
                Some(marks) => Ok(marks.next(order)),
                None => driver.event(context).map(Mark::Event),
            };
            let Ok(mark) = mark else { return false };
            if mark.queue(driver, context, stream).is_err() {
                return false;
            }
            while !matches!(mark.is_reached(driver, context), Ok(true)) {
                if begun.elapsed() > PATIENCE {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(20));
            }
            true
        })
    }

    pub(super) fn stream(&self, order: Order) -> Stream {
        match order {
            Order::AfterApplication if !self.ordered => Stream::DEFAULT,
            Order::AfterApplication | Order::Own => self.stream,
            Order::ToHost => self.to_host,
            Order::FromHost => self.from_host,
            // Nothing is queued so before the stream is there.
            Order::Library => self.library.unwrap_or(self.stream),
        }
    }

    /// Gives memory back: to its driver, or, where freeing may wait for streams that wait for
    /// [the caller](Gpus::ordered_by_caller), to whoever else in the process wants some.
    pub(super) fn give_back(
        &self,
        driver: &dyn Driver,
        pinned: bool,
        address: usize,
        len_bytes: usize,
    ) {
        match (self.ordered, pinned) {
            (true, _) => spare::put(self.context, pinned, address, len_bytes),
            (false, true) => driver.free_pinned(self.context, address),
            (false, false) => driver.free(self.context, address),
        }
    }

    /// Gives back what is kept for later.
    pub(super) fn give_kept_back(&mut self, driver: &dyn Driver) {
        let pools = [(true, mem::take(&mut self.pinned)), (false, mem::take(&mut self.device))];
        for (pinned, mut pool) in pools {
            for (address, len_bytes) in pool.drain() {
                self.give_back(driver, pinned, address, len_bytes);
            }
        }
    }
}
