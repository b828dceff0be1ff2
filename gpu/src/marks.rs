//! Words in pinned memory that streams write when they come to a mark: how the end of work is seen without a call of the
//! driver, whose locks others may hold.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::{Context, Driver, Event, Stream};
use crate::error::Error;
use crate::gpus::Order;
use crate::spare;

/// From one word to the next.
const WORD_BYTES: usize = 64;
const BYTES: usize = 4096;
/// Streams of a lane.
const STREAMS: usize = 4;

/// How a handle's end is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    Event(Event),
    /// The word at the address has come to a value; `looks` counts how often it was looked at.
    Word {
        address: usize,
        value: u32,
        looks: u32,
    },
}

impl Mark {
    /// Puts the mark behind what has been queued on a stream.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) fn queue(
        self,
        driver: &dyn Driver,
        context: Context,
        stream: Stream,
    ) -> Result<(), Error> {
        match self {
            Mark::Event(event) => driver.record(context, event, stream),
            Mark::Word { address, value, .. } => {
                driver.write_value(context, stream, address, value)
            }
        }
    }

    /// Whether the stream has come to it.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) fn is_reached(self, driver: &dyn Driver, context: Context) -> Result<bool, Error> {
        match self {
            Mark::Event(event) => driver.finished(context, event),
            Mark::Word { address, value, .. } => {
                Ok(word(address).load(Ordering::Acquire).wrapping_sub(value) as i32 >= 0)
            }
        }
    }
}

/// The words of a lane's streams, and the last value of each.
#[derive(Debug)]
pub(crate) struct Marks {
    address: usize,
    last: [u32; STREAMS],
}

impl Marks {
    /// Words in pinned memory of the context.
    ///
    /// # Errors
    /// Of the driver, when there is none.
    pub(crate) fn new(driver: &dyn Driver, context: Context) -> Result<Marks, Error> {
        let address = match spare::take(context, true, BYTES) {
            Some(address) => address,
            None => driver.allocate_pinned(context, BYTES)?,
        };
        let marks = Marks { address, last: [0; STREAMS] };
        for index in 0..STREAMS {
            word(address + index * WORD_BYTES).store(0, Ordering::Release);
        }
        Ok(marks)
    }

    /// The word of the stream of an order, and the next value for it.
    pub(crate) fn next(&mut self, order: Order) -> Mark {
        let index = match order {
            Order::AfterApplication | Order::Own => 0,
            Order::ToHost => 1,
            Order::FromHost => 2,
            Order::Library => 3,
        };
        self.last[index] = self.last[index].wrapping_add(1);
        Mark::Word { address: self.address + index * WORD_BYTES, value: self.last[index], looks: 0 }
    }

    /// Nothing under way uses them any more.
    pub(crate) fn give_back(&self, context: Context) {
        spare::put(context, true, self.address, BYTES);
    }
}

/// A word of a lane's marks.
fn word(address: usize) -> &'static AtomicU32 {
    // SAFETY: pinned memory that is never freed, aligned; devices write it as one word.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address)) }
}
