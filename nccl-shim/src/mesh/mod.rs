//! Messages between the ranks of a communicator over TCP, one connection per pair that talks.
//!
//! The lower rank of a pair connects at its first message; what the higher one has to say waits until then. Frames: a
//! header of 16 bytes (length, tag, kind) and the bytes. What arrives before it is asked for is kept. Ranks of one host go over
//! to shared memory ([`ring`]).

mod peer;
mod ring;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hetccl_core::{Handle, MessageTag, Posted, Rank, Region, Transport, TransportError};
use slab::Slab;

use crate::Failure;
use peer::Peer;

const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the rings to all ranks of this host together, and of one.
const ALL_RINGS_BYTES: usize = 4 << 20;
const RING_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// Secret and rank.
const HELLO_BYTES: usize = 20;

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
    secret: [u8; 16],
    listener: TcpListener,
    /// Connections whose rank is not known yet.
    strangers: Vec<(TcpStream, Vec<u8>)>,
    peers: Vec<Peer>,
    states: Slab<State>,
}

/// A mesh that an engine and its runtime's communicator share.
#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Mutex<Mesh>>);

impl Link {
    /// Connections of `rank` to ranks with these addresses, which are on this host or not.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn new(
        rank: usize,
        secret: [u8; 16],
        listener: TcpListener,
        places: Vec<(Vec<SocketAddr>, bool)>,
    ) -> Result<Link, Failure> {
        listener
            .set_nonblocking(true)
            .map_err(|error| Failure::system("a listening socket", &error))?;
        let near = places.iter().filter(|(_, is_near)| *is_near).count();
        let ring_bytes =
            (ALL_RINGS_BYTES / near.max(1)).clamp(*RING_BYTES.start(), *RING_BYTES.end());
        let peer =
            |(addresses, is_near): (_, bool)| Peer::new(addresses, is_near.then_some(ring_bytes));
        let peers = places.into_iter().map(peer).collect();
        let mesh =
            Mesh { rank, secret, listener, strangers: Vec::new(), peers, states: Slab::new() };
        Ok(Link(Arc::new(Mutex::new(mesh))))
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
        let mut any = false;
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                self.strangers.push((stream, Vec::new()));
            }
        }
        let mut index = 0;
        while index < self.strangers.len() {
            let (stream, hello) = &mut self.strangers[index];
            let mut bytes = [0; HELLO_BYTES];
            match stream.read(&mut bytes[hello.len()..]) {
                Ok(0) => {}
                Ok(len) => {
                    let from = hello.len();
                    hello.extend_from_slice(&bytes[from..from + len]);
                    if hello.len() < HELLO_BYTES {
                        index += 1;
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    index += 1;
                    continue;
                }
                Err(_) => {}
            }
            let (stream, hello) = self.strangers.swap_remove(index);
            let known = hello.len() == HELLO_BYTES && hello[..16] == self.secret;
            let rank =
                hello.get(16..).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
            if let (true, Some(rank)) = (known, rank)
                && (rank as usize) < self.rank
            {
                self.peers[rank as usize].connected(stream);
                any = true;
            }
        }
        any
    }

    fn connect(&mut self, peer: usize) -> Result<(), TransportError> {
        if peer <= self.rank || !self.peers[peer].needs_connection() {
            return Ok(());
        }
        let mut trouble = String::new();
        for address in self.peers[peer].addresses.clone() {
            let mut hello = self.secret.to_vec();
            hello.extend_from_slice(&(self.rank as u32).to_le_bytes());
            let attempt =
                TcpStream::connect_timeout(&address, CONNECT_PATIENCE).and_then(|mut stream| {
                    stream.set_nodelay(true)?;
                    stream.write_all(&hello)?;
                    stream.set_nonblocking(true)?;
                    Ok(stream)
                });
            match attempt {
                Ok(stream) => {
                    self.peers[peer].connected(stream);
                    return Ok(());
                }
                Err(error) => trouble = format!("{trouble}; {address}: {error}"),
            }
        }
        Err(TransportError::Unreachable {
            peer: Rank::from(peer),
            reason: format!("no connection over TCP{trouble}"),
        })
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
