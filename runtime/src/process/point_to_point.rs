//! Single messages between two ranks, for front ends that have send and receive.

use hetccl_core::{Handle, MessageTag, Posted, Rank, Region, Transport, TransportError};

use super::{Process, with_transport};
use crate::communicator::Communicator;
use crate::messages::AnyMemory;

/// The sequence numbers that such messages carry; collectives have others.
const PROGRAM: u16 = 61;
const FRONT_END: u16 = 60;
/// Their numbers stay below those of replies.
const NUMBERS: u16 = 1 << 14;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Receive,
}

/// How many messages went to and came from each peer.
#[derive(Debug)]
pub struct MessageCounts {
    sequence: u16,
    counts: rustc_hash::FxHashMap<(Rank, bool), u16>,
}

impl MessageCounts {
    /// For messages of the program.
    pub fn of_program() -> MessageCounts {
        MessageCounts { sequence: PROGRAM, counts: rustc_hash::FxHashMap::default() }
    }

    /// For messages of the front end's own, which are counted apart.
    pub fn of_front_end() -> MessageCounts {
        MessageCounts { sequence: FRONT_END, counts: rustc_hash::FxHashMap::default() }
    }

    fn next(&mut self, peer: Rank, direction: Direction) -> u16 {
        let count = self.counts.entry((peer, direction == Direction::Send)).or_default();
        let number = *count;
        *count = (number + 1) % NUMBERS;
        number
    }
}

impl Process {
    /// Starts a message of a region of any memory. The n-th send to a rank meets the n-th receive from it there, and
    /// both have the same length. `counts` belongs to the communicator.
    ///
    /// # Errors
    /// Of the wire or a driver.
    ///
    /// # Safety
    /// The region is memory of this process that stays valid, and unused by others, until the message has finished,
    /// failed or been cancelled.
    pub unsafe fn post_message(
        &mut self,
        communicator: &mut Communicator,
        counts: &mut MessageCounts,
        direction: Direction,
        peer: Rank,
        region: Region,
    ) -> Result<Posted, TransportError> {
        let tag = MessageTag { sequence: counts.sequence, step: counts.next(peer, direction) };
        if communicator.one_device && communicator.any_memory && counts.sequence == PROGRAM {
            return self.post_near(communicator, direction, peer, tag, region);
        }
        self.with_messages(communicator, |transport| match direction {
            Direction::Send => transport.send(peer, tag, region),
            Direction::Receive => transport.recv(peer, tag, region),
        })
    }

    fn post_near(
        &mut self,
        communicator: &mut Communicator,
        direction: Direction,
        peer: Rank,
        tag: MessageTag,
        region: Region,
    ) -> Result<Posted, TransportError> {
        let Process { fabric, gpus, messages, .. } = self;
        let (own, direct) = (communicator.group.rank, communicator.direct);
        with_transport(fabric, &mut communicator.wire, |inner| {
            let mut transport = AnyMemory { inner, gpus, messages, direct };
            transport.post_near((own, peer), tag, region, direction == Direction::Send)
        })
    }

    /// Whether a message has finished. After `Ok(true)` or an error the handle is gone.
    ///
    /// # Errors
    /// Of the wire or a driver.
    pub fn test_message(
        &mut self,
        communicator: &mut Communicator,
        handle: Handle,
    ) -> Result<bool, TransportError> {
        self.with_messages(communicator, |transport| transport.test(handle))
    }

    /// Gives up on a message; its memory may be used again when this returns.
    pub fn cancel_message(&mut self, communicator: &mut Communicator, handle: Handle) {
        self.with_messages(communicator, |transport| transport.cancel(handle));
    }

    fn with_messages<T>(
        &mut self,
        communicator: &mut Communicator,
        f: impl FnOnce(&mut dyn Transport) -> T,
    ) -> T {
        let Process { fabric, gpus, messages, .. } = self;
        let (any_memory, direct) = (communicator.any_memory, communicator.direct);
        with_transport(fabric, &mut communicator.wire, |inner| {
            if any_memory { f(&mut AnyMemory { inner, gpus, messages, direct }) } else { f(inner) }
        })
    }
}
