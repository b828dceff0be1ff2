//! Puts into windows and signals: what arrives without being asked for.
//!
//! Each rank listens for the next notice of each other one. A notice is 64 bytes: which window, where in it, how many bytes
//! follow, and which signal they end with. The bytes are received into the window, and then the signal counts one more. A
//! task that waits for signals takes them off their counts. Notices and bytes of a rank come in the order in which it put them.

use std::collections::HashMap;

use hetccl_core::{Handle, Posted, Rank, Region};
use hetccl_runtime::{Direction, MessageCounts};

use super::Engine;
use super::task::Part;
use crate::Failure;
use crate::abi::Code;
use crate::operation::{self, PutWork, Signal};

const NOTICE_BYTES: usize = 64;

/// The windows of a rank by number, which is the same on all ranks; `None`: deregistered.
pub(crate) type Windows = Vec<Option<Window>>;

/// Memory of the program that others may put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) address: usize,
    pub(crate) len_bytes: usize,
}

/// What a rank is told of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notice {
    window: u64,
    offset_bytes: u64,
    len_bytes: u64,
    signal: u32,
    context: u32,
}

impl Notice {
    fn of(work: &PutWork) -> Notice {
        Notice {
            window: work.window as u64,
            offset_bytes: work.offset_bytes as u64,
            len_bytes: work.len_bytes as u64,
            signal: work.signal.index,
            context: work.signal.context,
        }
    }

    fn to_bytes(self) -> Box<[u8; NOTICE_BYTES]> {
        let mut bytes = Box::new([0; NOTICE_BYTES]);
        let words = [self.window, self.offset_bytes, self.len_bytes];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..28].copy_from_slice(&self.signal.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.context.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTICE_BYTES]) -> Notice {
        let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let short = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        Notice {
            window: word(0),
            offset_bytes: word(8),
            len_bytes: word(16),
            signal: short(24),
            context: short(28),
        }
    }

    /// Where in this rank's windows the bytes go.
    fn place(&self, windows: &Windows, from: usize) -> Result<(usize, usize), Failure> {
        let wrong = |what: String| {
            Failure::usage(format!(
                "rank {from} puts {} bytes at offset {} of window {}, {what}",
                self.len_bytes, self.offset_bytes, self.window
            ))
        };
        let window = windows.get(self.window as usize).copied().flatten().ok_or_else(|| {
            wrong("which this rank has not registered, or has deregistered: all ranks register the same windows".into())
        })?;
        let end = self.offset_bytes.checked_add(self.len_bytes);
        if end.is_none_or(|end| end > window.len_bytes as u64) {
            return Err(wrong(format!("which has {} bytes here", window.len_bytes)));
        }
        Ok((window.address + self.offset_bytes as usize, self.len_bytes as usize))
    }
}

/// What a rank listens to.
#[derive(Debug)]
pub(crate) struct Listening {
    peers: Vec<Peer>,
    counts: MessageCounts,
    /// Signals that have come and nobody has waited for.
    signals: HashMap<Signal, u64>,
}

#[derive(Debug)]
struct Peer {
    /// Where the next notice goes; it does not move.
    notice: Box<[u8; NOTICE_BYTES]>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// To be listened to.
    New,
    Notice(Posted),
    Bytes(Posted, Signal),
    /// It has gone, for whatever reason.
    Gone(Failure),
}

impl Listening {
    fn new(size: usize) -> Listening {
        let peer = |_| Peer { notice: Box::new([0; NOTICE_BYTES]), phase: Phase::New };
        Listening {
            peers: (0..size).map(peer).collect(),
            counts: MessageCounts::of_front_end(),
            signals: HashMap::new(),
        }
    }
}

impl Engine {
    /// From now on notices of other ranks are received.
    pub(super) fn listen(&mut self) {
        if self.listening.is_none() {
            self.listening = Some(Box::new(Listening::new(self.size)));
        }
    }

    /// Receives what has come; whether anything has.
    ///
    /// # Errors
    /// A put that does not fit this rank's windows.
    pub(super) fn serve_puts(&mut self) -> Result<bool, Failure> {
        let Some(mut listening) = self.listening.take() else { return Ok(false) };
        let mut served = Ok(false);
        for peer in 0..self.size {
            if peer != self.rank
                && let Ok(moved) = served
            {
                served = self.serve_peer(&mut listening, peer).map(|any| any || moved);
            }
        }
        self.listening = Some(listening);
        served
    }

    fn serve_peer(&mut self, listening: &mut Listening, from: usize) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let (next, came) = match &listening.peers[from].phase {
                Phase::Gone(_) => return Ok(moved),
                Phase::New => (self.hear_notice(listening, from), None),
                Phase::Notice(posted) => match self.has_come(*posted) {
                    Ok(false) => return Ok(moved),
                    Ok(true) => {
                        let notice = Notice::from_bytes(&listening.peers[from].notice);
                        let Notice { signal: index, context, .. } = notice;
                        let signal = Signal { peer: from, index, context };
                        match notice.len_bytes {
                            0 => (self.hear_notice(listening, from), Some(signal)),
                            _ => (self.hear_bytes(listening, notice, signal)?, None),
                        }
                    }
                    Err(failure) => (Phase::Gone(failure), None),
                },
                Phase::Bytes(posted, signal) => match self.has_come(*posted) {
                    Ok(false) => return Ok(moved),
                    Ok(true) => {
                        let signal = *signal;
                        (self.hear_notice(listening, from), Some(signal))
                    }
                    Err(failure) => (Phase::Gone(failure), None),
                },
            };
            if let Some(signal) = came {
                *listening.signals.entry(signal).or_default() += 1;
            }
            listening.peers[from].phase = next;
            moved = true;
        }
    }

    fn has_come(&mut self, posted: Posted) -> Result<bool, Failure> {
        match posted {
            Posted::Done => Ok(true),
            Posted::Pending(handle) => {
                Ok(self.process.test_message(&mut self.communicator, handle)?)
            }
        }
    }

    fn hear_notice(&mut self, listening: &mut Listening, from: usize) -> Phase {
        let region = Region::of_bytes_mut(&mut listening.peers[from].notice[..]);
        match self.post(&mut listening.counts, Direction::Receive, from, region) {
            Ok(posted) => Phase::Notice(posted),
            Err(failure) => Phase::Gone(failure),
        }
    }

    fn hear_bytes(
        &mut self,
        listening: &mut Listening,
        notice: Notice,
        signal: Signal,
    ) -> Result<Phase, Failure> {
        let place = notice.place(&self.shared.windows(), signal.peer);
        let (address, len_bytes) = place?;
        // The window may be newer than the task under way, and lie where other memory was.
        self.process.gpus().begin_work();
        let into = operation::region(self.process.gpus(), address, len_bytes)?;
        Ok(match self.post(&mut listening.counts, Direction::Receive, signal.peer, into) {
            Ok(posted) => Phase::Bytes(posted, signal),
            Err(failure) => Phase::Gone(failure),
        })
    }

    fn post(
        &mut self,
        counts: &mut MessageCounts,
        direction: Direction,
        peer: usize,
        region: Region,
    ) -> Result<Posted, Failure> {
        let peer = Rank::from(peer);
        // SAFETY: a notice's bytes stay where they are until it has come or is cancelled; windows and buffers of puts are the
        // program's, which keeps them until it has deregistered them, or its stream has gone on, as NCCL demands.
        let posted = unsafe {
            self.process.post_message(&mut self.communicator, counts, direction, peer, region)
        };
        Ok(posted?)
    }

    /// Starts a put: the notice and the bytes, or a copy where the window is this rank's own.
    pub(super) fn start_put(
        &mut self,
        work: &PutWork,
        parts: &mut Vec<Part>,
    ) -> Result<(), Failure> {
        self.listen();
        let notice = Notice::of(work);
        if work.peer == self.rank {
            return self.put_own(work, notice, parts);
        }
        let from = operation::region(self.process.gpus(), work.address, work.len_bytes)?;
        let Some(mut listening) = self.listening.take() else { return Ok(()) };
        let bytes = notice.to_bytes();
        let region = Region::of_bytes(&bytes[..]);
        let mut posted = vec![self.post(&mut listening.counts, Direction::Send, work.peer, region)];
        if work.len_bytes > 0 {
            posted.push(self.post(&mut listening.counts, Direction::Send, work.peer, from));
        }
        self.listening = Some(listening);
        let mut handles = Vec::new();
        for posted in posted {
            if let Posted::Pending(handle) = posted? {
                handles.push(handle);
            }
        }
        parts.push(Part::Put { handles, _notice: bytes });
        Ok(())
    }

    fn put_own(
        &mut self,
        work: &PutWork,
        notice: Notice,
        parts: &mut Vec<Part>,
    ) -> Result<(), Failure> {
        let mut handle = None;
        if work.len_bytes > 0 {
            let place = notice.place(&self.shared.windows(), self.rank);
            let (address, len_bytes) = place?;
            let into = operation::region(self.process.gpus(), address, len_bytes)?;
            let from = operation::region(self.process.gpus(), work.address, work.len_bytes)?;
            handle = match self.copy(from, into)? {
                Some(Part::Device(handle)) => Some(handle),
                _ => None,
            };
        }
        parts.push(Part::OwnPut(handle, Signal { peer: self.rank, ..work.signal }));
        Ok(())
    }

    /// Whether the copy of a put into this rank's own window is done; the signal is given then.
    pub(super) fn advance_own_put(
        &mut self,
        handle: Option<Handle>,
        signal: Signal,
    ) -> Result<bool, Failure> {
        if let Some(handle) = handle
            && !self.process.gpus().test(handle)?
        {
            return Ok(false);
        }
        if let Some(listening) = &mut self.listening {
            *listening.signals.entry(signal).or_default() += 1;
        }
        Ok(true)
    }

    /// Takes `count` of a signal off, if so many have come.
    ///
    /// # Errors
    /// The rank that is to signal has gone.
    pub(super) fn take_signals(&mut self, signal: Signal, count: u64) -> Result<bool, Failure> {
        let Some(listening) = &mut self.listening else { return Ok(false) };
        let come = listening.signals.entry(signal).or_default();
        if *come >= count {
            *come -= count;
            return Ok(true);
        }
        match &listening.peers[signal.peer].phase {
            Phase::Gone(failure) => Err(Failure { code: Code::RemoteError, ..failure.clone() }),
            _ => Ok(false),
        }
    }

    /// Takes the memory of notices back.
    pub(super) fn stop_listening(&mut self) {
        let Some(listening) = self.listening.take() else { return };
        for peer in &listening.peers {
            if let Phase::Notice(Posted::Pending(handle))
            | Phase::Bytes(Posted::Pending(handle), _) = peer.phase
            {
                self.process.cancel_message(&mut self.communicator, handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_survive_the_wire() {
        let notice = Notice { window: 1, offset_bytes: 2, len_bytes: 3, signal: 4, context: 5 };
        assert_eq!(Notice::from_bytes(&notice.to_bytes()), notice);
    }

    #[test]
    fn puts_outside_of_windows_are_refused_and_named() {
        let windows = vec![None, Some(Window { address: 1000, len_bytes: 64 })];
        let at = |window, offset_bytes, len_bytes| {
            let notice = Notice { window, offset_bytes, len_bytes, signal: 0, context: 0 };
            notice.place(&windows, 3).map_err(|failure| failure.text)
        };
        assert_eq!(at(1, 60, 4), Ok((1060, 4)));
        for (window, offset, len) in
            [(1, 61, 4), (1, u64::MAX, 4), (1, 0, 65), (0, 0, 1), (2, 0, 1)]
        {
            let text = at(window, offset, len).unwrap_err();
            assert!(text.contains("rank 3 puts"), "{text}");
        }
    }
}
