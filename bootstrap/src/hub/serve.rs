//! The thread behind a port.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Door, HANDSHAKE, MOST_CONNECTIONS, State, as_link};
use crate::error::{Error, Failure, Result};
use crate::handshake::{self, HELLO_BYTES, Hello, Nonce, PROOF_BYTES, RELEASE, Status};
use crate::mailbox::Arrived;
use crate::wire::{self, Reply, Request, Secret};

/// An id of NCCL_COMM_ID that has failed goes on explaining itself for this long.
const LINGER: Duration = Duration::from_secs(5);

/// So many are accepted before those that are there have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long a rank of a job may take for its request, which may be a long message.
const REQUEST: Duration = Duration::from_secs(60);
/// So much is read from one connection before the others have their turn.
const PIECES_AT_ONCE: usize = 16;

struct Server {
    listener: TcpListener,
    state: Arc<State>,
    /// Serve until this id is over.
    until_over: Option<Secret>,
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    from: Option<SocketAddr>,
    buffer: Vec<u8>,
    since: Instant,
    phase: Phase,
    /// Nothing more can be read or written.
    ended: bool,
}

enum Phase {
    Hello,
    /// It is to prove that it knows the secret of a door: the door, the secret, its nonce and this side's.
    Proof(Door, Secret, Nonce, Nonce),
    Request(Door),
    /// The first to arrive of a tree: it hears of failures.
    First(Secret, u8),
    Over,
}

/// Serves a port in a thread of its own: for as long as the process lives, or until an id is over.
pub(crate) fn in_background(
    listener: TcpListener,
    state: Arc<State>,
    until_over: Option<Secret>,
) -> Result<()> {
    let mut server = Server { listener, state, until_over, connections: Vec::new() };
    let thread = std::thread::Builder::new().name("hetccl-port".into()).stack_size(256 << 10);
    let started = thread.spawn(move || server.run());
    started
        .map(drop)
        .map_err(|error| Error::System { what: "starting a thread", reason: error.to_string() })
}

impl Server {
    fn run(&mut self) {
        let mut over_since = None;
        loop {
            let ready = self.wait();
            for (connection, ready) in self.connections.iter_mut().zip(&ready[1..]) {
                connection.ready(*ready);
            }
            for at in 0..self.connections.len() {
                self.serve(at);
                self.bury(at);
            }
            let now = Instant::now();
            let state = &self.state;
            self.connections.retain(|connection| match connection.phase {
                Phase::Over => false,
                Phase::First(..) => true,
                _ => {
                    let limit = if connection.is_stranger() { HANDSHAKE } else { REQUEST };
                    let in_time = now.duration_since(connection.since) < limit;
                    if !in_time {
                        let seconds = limit.as_secs();
                        let why = format!("it did not say its words in {seconds} s");
                        connection.refuse(state, &why);
                    }
                    in_time
                }
            });
            if ready[0] {
                self.accept();
            }
            if let Some(secret) = self.until_over {
                let over = !self.state.lock().ids.contains_key(&secret);
                let since = over_since.get_or_insert(now);
                if !over {
                    over_since = None;
                } else if self.failed(secret).is_none() || now.duration_since(*since) > LINGER {
                    return;
                }
            }
        }
    }

    /// Which of the listener and the connections can be read.
    fn wait(&self) -> Vec<bool> {
        let room = self.connections.len() < MOST_CONNECTIONS
            || self.connections.iter().any(Connection::is_stranger);
        let listen = if room { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut waiting = vec![PollFd::new(self.listener.as_fd(), listen)];
        let streams = self.connections.iter().map(|connection| connection.stream.as_fd());
        waiting.extend(streams.map(|stream| PollFd::new(stream, PollFlags::POLLIN)));
        let strangers = self.connections.iter().any(|c| !matches!(c.phase, Phase::First(..)));
        let timeout: PollTimeout = match strangers || self.until_over.is_some() {
            true => 1000u16.into(),
            false => PollTimeout::NONE,
        };
        if poll(&mut waiting, timeout).is_err() {
            // Interrupted, or no memory: look at nothing this time, and not at once again.
            std::thread::sleep(Duration::from_millis(1));
            return vec![false; waiting.len()];
        }
        waiting.iter().map(|entry| entry.any().unwrap_or(true)).collect()
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.make_room() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let usable =
                        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
                    if usable.is_ok() {
                        let (buffer, since) = (Vec::new(), Instant::now());
                        let phase = Phase::Hello;
                        self.connections.push(Connection {
                            stream,
                            from: Some(from),
                            buffer,
                            since,
                            phase,
                            ended: false,
                        });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // No file descriptors left: others will be closed.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    /// Whether there is room for one more connection, for which the oldest stranger may have to go.
    fn make_room(&mut self) -> bool {
        if self.connections.len() < MOST_CONNECTIONS {
            return true;
        }
        let Some(oldest) = self.connections.iter().position(Connection::is_stranger) else {
            return false;
        };
        let connection = self.connections.remove(oldest);
        let why = format!("{MOST_CONNECTIONS} others came after it while it said nothing");
        connection.refuse(&self.state, &why);
        true
    }

    /// Takes everything that a connection has sent, as far as it is complete.
    fn serve(&mut self, at: usize) {
        loop {
            let connection = &mut self.connections[at];
            match connection.phase {
                Phase::Over => return,
                Phase::Hello => {
                    if !connection.take_hello(&self.state) {
                        return;
                    }
                }
                Phase::Proof(..) => {
                    if !connection.take_proof(&self.state) {
                        return;
                    }
                }
                Phase::Request(_) | Phase::First(..) => {
                    match wire::take::<Request>(&mut connection.buffer, wire::MOST_REQUEST_BYTES) {
                        Ok(Some(request)) => self.answer(at, request),
                        Ok(None) => return,
                        Err(error) => {
                            let why = format!("a rank's request makes no sense: {error}");
                            connection.refuse(&self.state, &why);
                            connection.ended = true;
                            return;
                        }
                    }
                }
            }
        }
    }

    /// The end of the first's connection is the end of the making of its tree.
    fn bury(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if !connection.ended {
            return;
        }
        // Who has several ways to a port says the hello on each, and goes on with the first that answers.
        if let Phase::Hello = connection.phase {
            connection.refuse(&self.state, "it hung up before it had said who it is");
        }
        let phase = std::mem::replace(&mut connection.phase, Phase::Over);
        if let Phase::First(secret, level) = phase {
            let mut doors = self.state.lock();
            let ended = doors.ids.get_mut(&secret).and_then(|ids| ids.first_has_gone(level));
            drop(doors);
            if let Some(failure) = ended {
                let remember = failure.is_some() || self.until_over.is_none();
                self.state.end_id(secret, failure, remember);
            }
        }
    }

    fn answer(&mut self, at: usize, request: Request) {
        let connection = &mut self.connections[at];
        let phase = std::mem::replace(&mut connection.phase, Phase::Over);
        match phase {
            Phase::Request(Door::Member(mailbox)) => match request {
                Request::Link { context, level, index, who } => {
                    let Ok(stream) = connection.stream.try_clone().and_then(as_link) else {
                        return;
                    };
                    let mut answering = match connection.stream.try_clone() {
                        Ok(stream) => stream,
                        Err(_) => return,
                    };
                    // The answer goes first: once the link is in the mailbox, it is its owner's.
                    let sent =
                        wire::frame(&Reply::Done).and_then(|bytes| answering.write_all(&bytes));
                    if sent.is_ok() {
                        let link = Arrived { level, index, who, stream };
                        if let Err(failure) = mailbox.put_link(context, link) {
                            let refused = wire::frame(&wire::Frame::Fail(failure));
                            let _gone = refused.and_then(|bytes| answering.write_all(&bytes));
                        }
                    }
                }
                Request::Stream { context, from } => {
                    let Ok(stream) = connection.stream.try_clone().and_then(as_link) else {
                        return;
                    };
                    connection.send(&Reply::Done);
                    if !connection.ended {
                        // Whoever connected hears of the group's failure by its tree.
                        let _failed = mailbox.put_stream(context, from, stream);
                    }
                }
                Request::Message { context, from, tag, payload } => {
                    let stored = mailbox.put_message((context, from, tag), payload.into_vec());
                    connection.send(&match stored {
                        Ok(()) => Reply::Done,
                        Err(failure) => Reply::Refused(failure),
                    });
                }
                _ => {}
            },
            Phase::Request(Door::Id(secret)) => self.root_answer(at, secret, request),
            Phase::First(secret, level) => {
                connection.phase = Phase::First(secret, level);
                if let Request::Missing = request {
                    let doors = self.state.lock();
                    let slots = doors.ids.get(&secret).map(|ids| ids.missing(level));
                    drop(doors);
                    connection.send(&Reply::Missing { slots: slots.unwrap_or_default() });
                }
            }
            Phase::Hello | Phase::Proof(..) | Phase::Over => {}
        }
    }

    /// Answers as the root of an id.
    fn root_answer(&mut self, at: usize, secret: Secret, request: Request) {
        let failed = self.failed(secret);
        let mut doors = self.state.lock();
        let Some(ids) = doors.ids.get_mut(&secret) else {
            drop(doors);
            if let Some(failure) = failed {
                self.connections[at].send(&Reply::Refused(failure));
            }
            return;
        };
        let connection = &mut self.connections[at];
        match request {
            Request::CheckIn(check_in) => {
                let level = check_in.level;
                let (reply, news) = ids.check_in(check_in);
                drop(doors);
                if let Reply::Assigned { index: 0, .. } = reply {
                    connection.phase = Phase::First(secret, level);
                }
                connection.send(&reply);
                if let Some(failure) = news {
                    self.tell_first(secret, level, &failure);
                }
            }
            Request::Report { level, failure } => {
                ids.fail(level, failure.clone());
                drop(doors);
                connection.send(&Reply::Done);
                self.tell_first(secret, level, &failure);
            }
            Request::Arrival { level, index } => {
                let who = ids.arrival(level, index);
                drop(doors);
                connection.send(&Reply::Arrival(who));
            }
            Request::Missing
            | Request::Link { .. }
            | Request::Message { .. }
            | Request::Stream { .. } => {}
        }
    }

    fn tell_first(&mut self, secret: Secret, level: u8, failure: &Failure) {
        for connection in &mut self.connections {
            if matches!(connection.phase, Phase::First(s, l) if s == secret && l == level) {
                connection.send(&Reply::Refused(failure.clone()));
            }
        }
    }

    fn failed(&self, secret: Secret) -> Option<Failure> {
        let doors = self.state.lock();
        let ended = doors.ended.iter().rev().find(|(ended, _)| *ended == secret);
        ended.and_then(|(_, failure)| failure.clone())
    }
}

impl Connection {
    /// Reads what is there.
    fn ready(&mut self, ready: bool) {
        if !ready || matches!(self.phase, Phase::Over) {
            return;
        }
        let mut piece = [0; 64 << 10];
        let most = match self.phase {
            Phase::Hello => HELLO_BYTES.saturating_sub(self.buffer.len()).max(1),
            Phase::Proof(..) => PROOF_BYTES.saturating_sub(self.buffer.len()).max(1),
            _ => piece.len(),
        };
        let times = if self.is_stranger() { 1 } else { PIECES_AT_ONCE };
        for _ in 0..times {
            match self.stream.read(&mut piece[..most]) {
                Ok(count) if count > 0 => self.buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// Whether it has not proved yet that it belongs to a job of this process.
    fn is_stranger(&self) -> bool {
        matches!(self.phase, Phase::Hello | Phase::Proof(..))
    }

    fn refuse(&self, state: &State, why: &str) {
        let mut refusals = state.refusals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        refusals.add(self.from, why, Instant::now());
    }

    /// Whether there was a hello.
    fn take_hello(&mut self, state: &State) -> bool {
        let hello = match handshake::read_hello(&self.buffer) {
            Ok(None) => return false,
            Ok(Some(hello)) => hello,
            Err(error) => {
                self.refuse(state, &error.to_string());
                self.phase = Phase::Over;
                return false;
            }
        };
        let len = self.buffer.len().min(HELLO_BYTES);
        self.buffer.drain(..len);
        let opened = match hello {
            Hello::OtherVersion(version) => {
                let ours = wire::VERSION;
                let why = format!("it has version {version} of the protocol, this process {ours}");
                Err((Status::OtherVersion, why))
            }
            Hello::OtherRelease(release) => {
                let why = format!("it has hetccl {release}, this process {RELEASE}");
                Err((Status::OtherRelease, why))
            }
            Hello::For(name, theirs) => match state.open(&name) {
                Ok((door, secret)) => Ok((door, secret, theirs)),
                Err(Status::Used) => {
                    let why = "it came with a unique id that has been used".to_owned();
                    Err((Status::Used, why))
                }
                Err(status) => {
                    Err((status, "it does not know a secret of this process's jobs".to_owned()))
                }
            },
        };
        let answer = match opened {
            Ok((door, secret, theirs)) => {
                let own: Nonce = rand::random();
                let answer = handshake::answer(Status::Welcome, Some((&secret, &theirs, &own)));
                self.phase = Phase::Proof(door, secret, theirs, own);
                answer
            }
            Err((status, why)) => {
                self.refuse(state, &why);
                self.phase = Phase::Over;
                handshake::answer(status, None)
            }
        };
        if self.stream.write_all(&answer).is_err() {
            self.phase = Phase::Over;
        }
        true
    }

    /// Whether there was a proof.
    fn take_proof(&mut self, state: &State) -> bool {
        let Some(given) = self.buffer.first_chunk::<PROOF_BYTES>().copied() else { return false };
        self.buffer.drain(..PROOF_BYTES);
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if let Phase::Proof(door, secret, theirs, own) = phase {
            if handshake::is_proof(&secret, &theirs, &own, &given) {
                self.phase = Phase::Request(door);
            } else {
                self.refuse(state, "it knows the name of a secret, but not the secret itself");
            }
        }
        true
    }

    fn send(&mut self, reply: &Reply) {
        let sent: io::Result<()> =
            wire::frame(reply).and_then(|bytes| self.stream.write_all(&bytes));
        self.ended |= sent.is_err();
    }
}
