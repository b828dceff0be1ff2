//! Messages between the ranks of a communicator over TCP, one connection per pair that talks.
//!
//! The lower rank of a pair connects at its first message; what the higher one has to say waits until then. Frames: a
//! header of 16 bytes (length, tag, kind) and the bytes. What arrives before it is asked for is kept. Ranks of one host go over
//! to shared memory ([`ring`]).

mod peer;
mod ring;

use std::sync::{Arc, Mutex, MutexGuard};

use hetccl_core::{Handle, MessageTag, Posted, Rank, Region, Transport, TransportError};
use slab::Slab;

use crate::meeting::Meeting;
use peer::Peer;

/// Bytes of the rings to all ranks of this host together, and of one.
const ALL_RINGS_BYTES: usize = 4 << 20;
const RING_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// What is under way, by handle.
#[derive(Clone, Debug)]
enum State {
    Pending,
    Finished,
    Failed(TransportError),
}

/// One rank's connections.
#[derive(Debug)]
pub(crate) struct Mesh {
    rank: usize,
    /// Makes connections, of those who belong to the communicator only.
    meeting: Meeting,
    peers: Vec<Peer>,
    states: Slab<State>,
}

/// A mesh that an engine and its runtime's communicator share.
#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Mutex<Mesh>>);

impl Link {
    /// Connections of `rank` to the other ranks of a meeting, which are on this host or not.
    pub(crate) fn new(rank: usize, are_near: &[bool], meeting: Meeting) -> Link {
        let near = are_near.iter().filter(|&&is_near| is_near).count();
        let ring_bytes =
            (ALL_RINGS_BYTES / near.max(1)).clamp(*RING_BYTES.start(), *RING_BYTES.end());
        let peer = |&is_near: &bool| Peer::new(is_near.then_some(ring_bytes));
        let peers = are_near.iter().map(peer).collect();
        Link(Arc::new(Mutex::new(Mesh { rank, meeting, peers, states: Slab::new() })))
    }

    /// Moves what can be moved now; whether anything did.
    pub(crate) fn progress(&self) -> bool {
        self.lock().progress()
    }

    fn lock(&self) -> MutexGuard<'_, Mesh> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Mesh {
    fn progress(&mut self) -> bool {
        let mut any = self.accept();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            any |= peer.progress(index, &mut self.states);
        }
        any
    }

    fn accept(&mut self) -> bool {
        // Only higher ranks are connected to.
        if self.peers[..self.rank].iter().all(Peer::is_connected) {
            return false;
        }
        let streams = self.meeting.streams();
        let any = !streams.is_empty();
        for (rank, stream) in streams.into_iter().filter(|&(rank, _)| rank < self.rank) {
            self.peers[rank].connected(stream);
        }
        any
    }

    fn connect(&mut self, peer: usize) -> Result<(), TransportError> {
        if peer <= self.rank || !self.peers[peer].needs_connection() {
            return Ok(());
        }
        match self.meeting.connect(peer) {
            Ok(stream) => {
                self.peers[peer].connected(stream);
                Ok(())
            }
            Err(reason) => Err(TransportError::Unreachable { peer: Rank::from(peer), reason }),
        }
    }

    /// Adds something under way unless it is done at once.
    fn post(
        &mut self,
        peer: Rank,
        start: impl FnOnce(&mut Peer, usize, &mut Slab<State>),
    ) -> Result<Posted, TransportError> {
        self.connect(peer.index())?;
        let handle = self.states.insert(State::Pending);
        start(&mut self.peers[peer.index()], handle, &mut self.states);
        if matches!(self.states[handle], State::Pending) {
            return Ok(Posted::Pending(Handle(handle as u64)));
        }
        match self.states.remove(handle) {
            State::Failed(error) => Err(error),
            State::Pending | State::Finished => Ok(Posted::Done),
        }
    }
}

impl Transport for Link {
    fn send(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        from: Region,
    ) -> Result<Posted, TransportError> {
        self.lock()
            .post(peer, |to, handle, states| to.send(peer.index(), tag, from, handle, states))
    }

    fn recv(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        into: Region,
    ) -> Result<Posted, TransportError> {
        self.lock()
            .post(peer, |of, handle, states| of.recv(peer.index(), tag, into, handle, states))
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        let mut mesh = self.lock();
        let index = handle.0 as usize;
        match mesh.states.get(index) {
            Some(State::Pending) => return Ok(false),
            None => return Ok(true),
            Some(State::Finished | State::Failed(_)) => {}
        }
        match mesh.states.remove(index) {
            State::Failed(error) => Err(error),
            State::Pending | State::Finished => Ok(true),
        }
    }

    fn cancel(&mut self, handle: Handle) {
        let mut mesh = self.lock();
        let index = handle.0 as usize;
        mesh.states.try_remove(index);
        for peer in &mut mesh.peers {
            peer.cancel(index);
        }
    }
}
