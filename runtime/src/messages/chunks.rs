//! A message in chunks, through pinned host memory where its end is device memory.

use std::cell::RefCell;
use std::collections::VecDeque;

use hetccl_core::{
    Handle, MemoryType, MessageTag, Posted, Rank, Region, Transport, TransportError,
};
use hetccl_gpu::{Block, Gpus, Lane, Order};

/// Chunks of one message under way at a time: one is copied, one is on the wire, and each has one waiting.
const WINDOW: usize = 4;

/// This rank's end of the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) peer: Rank,
    pub(super) tag: MessageTag,
    pub(super) region: Region,
    pub(super) sends: bool,
}

#[derive(Debug)]
struct Slot {
    /// The chunk in the user's memory.
    user: Region,
    /// Where it passes through; `None` in host memory.
    block: Option<Block>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The device writes the block.
    Filling(Handle),
    /// On the wire.
    Moving(Handle),
    /// The device reads the block.
    Draining(Handle),
    /// To be freed.
    Over,
}

/// The chunks of a message, oldest first.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Bytes of a chunk.
    chunk_bytes: usize,
    /// The wire takes device memory.
    direct: bool,
    /// First byte that has not been started.
    next: usize,
    slots: VecDeque<Slot>,
}

impl Chunks {
    /// The message as one chunk.
    pub(super) fn whole() -> Chunks {
        Chunks::cut(usize::MAX)
    }

    /// The message as one chunk, from or into whatever memory it is in.
    pub(super) fn direct() -> Chunks {
        Chunks { direct: true, ..Chunks::whole() }
    }

    /// Chunks of `chunk_bytes`.
    pub(super) fn cut(chunk_bytes: usize) -> Chunks {
        Chunks { chunk_bytes, direct: false, next: 0, slots: VecDeque::new() }
    }

    /// Does what can be done now; whether all chunks have finished.
    ///
    /// # Errors
    /// Of the wire or the device; what is under way is left to [`give_up`](Chunks::give_up).
    pub(super) fn advance(
        &mut self,
        end: &End,
        inner: &mut dyn Transport,
        gpus: &RefCell<Gpus>,
    ) -> Result<bool, TransportError> {
        loop {
            let started = self.start(end, inner, gpus)?;
            // Chunks go on the wire in their order: the first whose copy is not done holds back those after it.
            let mut in_order = true;
            for slot in &mut self.slots {
                slot.advance(end, inner, gpus, &mut in_order)?;
            }
            let mut freed = false;
            while let Some(Slot { state: State::Over, .. }) = self.slots.front() {
                let block = self.slots.pop_front().and_then(|slot| slot.block);
                if let Some(block) = block {
                    gpus.borrow_mut().put(block);
                }
                freed = true;
            }
            if self.slots.is_empty() && self.next == end.region.len_bytes {
                return Ok(true);
            }
            if !freed && !started {
                return Ok(false);
            }
        }
    }

    /// Starts chunks while there is room in the window; whether any was.
    fn start(
        &mut self,
        end: &End,
        inner: &mut dyn Transport,
        gpus: &RefCell<Gpus>,
    ) -> Result<bool, TransportError> {
        let mut any = false;
        while self.slots.len() < WINDOW && self.next < end.region.len_bytes {
            let len_bytes = self.chunk_bytes.min(end.region.len_bytes - self.next);
            let user = end.region.slice(self.next, len_bytes);
            self.next += len_bytes;
            any = true;
            let mut slot = Slot { user, block: None, state: State::Over };
            // The slot owns its block before anything can fail.
            let lane = if self.direct { Ok(None) } else { slot.prepare(gpus) };
            self.slots.push_back(slot);
            let lane = lane?;
            if let Some(slot) = self.slots.back_mut() {
                slot.state = slot.first(end, lane, inner, gpus)?;
            }
        }
        Ok(any)
    }

    /// Cancels what is under way.
    pub(super) fn give_up(self, inner: &mut dyn Transport, gpus: &RefCell<Gpus>) {
        for slot in self.slots {
            match slot.state {
                State::Moving(handle) => inner.cancel(handle),
                State::Filling(copy) | State::Draining(copy) => {
                    // The block may be used again only after the copy.
                    let _ = gpus.borrow_mut().finish(copy);
                }
                State::Over => {}
            }
            if let Some(block) = slot.block {
                gpus.borrow_mut().put(block);
            }
        }
    }
}

impl Slot {
    /// A block for a chunk of device memory.
    fn prepare(&mut self, gpus: &RefCell<Gpus>) -> Result<Option<Lane>, TransportError> {
        if self.user.memory == MemoryType::Host {
            return Ok(None);
        }
        let mut gpus = gpus.borrow_mut();
        let lane = gpus.lane(self.user)?;
        self.block = Some(gpus.take_pinned(lane, self.user.len_bytes)?);
        Ok(Some(lane))
    }

    /// The chunk where the wire takes it.
    fn at_wire(&self) -> Region {
        self.block.as_ref().map_or(self.user, |block| block.region(self.user.len_bytes))
    }

    /// What a chunk begins with.
    fn first(
        &self,
        end: &End,
        lane: Option<Lane>,
        inner: &mut dyn Transport,
        gpus: &RefCell<Gpus>,
    ) -> Result<State, TransportError> {
        match lane {
            Some(lane) if end.sends => {
                let copy =
                    gpus.borrow_mut().copy(lane, Order::ToHost, self.user, self.at_wire())?;
                Ok(State::Filling(copy))
            }
            _ => self.post(end, inner, gpus),
        }
    }

    /// Puts the chunk on the wire.
    fn post(
        &self,
        end: &End,
        inner: &mut dyn Transport,
        gpus: &RefCell<Gpus>,
    ) -> Result<State, TransportError> {
        let posted = if end.sends {
            inner.send(end.peer, end.tag, self.at_wire())?
        } else {
            inner.recv(end.peer, end.tag, self.at_wire())?
        };
        match posted {
            Posted::Pending(handle) => Ok(State::Moving(handle)),
            Posted::Done => self.moved(end, gpus),
        }
    }

    /// What follows when the wire has done its part.
    fn moved(&self, end: &End, gpus: &RefCell<Gpus>) -> Result<State, TransportError> {
        if end.sends || self.block.is_none() {
            return Ok(State::Over);
        }
        let mut gpus = gpus.borrow_mut();
        let lane = gpus.lane(self.user)?;
        Ok(State::Draining(gpus.copy(lane, Order::FromHost, self.at_wire(), self.user)?))
    }

    fn advance(
        &mut self,
        end: &End,
        inner: &mut dyn Transport,
        gpus: &RefCell<Gpus>,
        in_order: &mut bool,
    ) -> Result<(), TransportError> {
        let (finished, on_wire) = match self.state {
            State::Over => return Ok(()),
            State::Filling(_) if !*in_order => return Ok(()),
            State::Filling(copy) | State::Draining(copy) => {
                (gpus.borrow_mut().test(copy).map_err(TransportError::from), false)
            }
            State::Moving(handle) => (inner.test(handle), true),
        };
        if let Ok(false) = finished {
            *in_order &= !matches!(self.state, State::Filling(_));
            return Ok(());
        }
        // The handle is gone, well or not.
        let filled = matches!(self.state, State::Filling(_));
        self.state = State::Over;
        finished?;
        if filled {
            self.state = self.post(end, inner, gpus)?;
        } else if on_wire {
            self.state = self.moved(end, gpus)?;
        }
        Ok(())
    }
}
