//! The port of this process: one thread serves its ids, the links that children open, and messages.
//!
//! The thread sleeps in `poll` when nothing comes. Connections that have not said a valid hello yet are few and short:
//! at most [`MOST_CONNECTIONS`], each for [`HANDSHAKE`]; the oldest stranger makes room for a new one. Who says anything but a
//! hello is dropped without an answer. What is refused is told, a few lines at most (`refusals.rs`).

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::error::{Error, Failure, Result};
use crate::handshake::{self, Name, Status};
use crate::mailbox::Mailbox;
use crate::wire::Secret;

mod assembly;
mod refusals;
mod serve;

use assembly::Assemblies;
use refusals::Refusals;

/// Connections at one time, those of the first ranks to arrive not counted.
const MOST_CONNECTIONS: usize = 512;
/// How long a stranger may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that wait to be accepted; the system may allow fewer.
const BACKLOG: i32 = 4096;
/// Ids that are over and still explained to those who come late.
const MOST_ENDED: usize = 256;

static HUB: Mutex<Option<Arc<Hub>>> = Mutex::new(None);

/// This process's port.
pub(crate) struct Hub {
    port: u16,
    process: u32,
    state: Arc<State>,
}

/// What the port leads to.
pub(crate) struct State {
    inner: Mutex<Doors>,
    refusals: Mutex<Refusals>,
}

#[derive(Default)]
struct Doors {
    /// What those who connect call the secrets below.
    names: HashMap<Name, Secret>,
    ids: HashMap<Secret, Assemblies>,
    members: HashMap<Secret, Arc<Mailbox>>,
    ended: VecDeque<(Secret, Option<Failure>)>,
}

/// What a secret opens.
enum Door {
    Id(Secret),
    Member(Arc<Mailbox>),
}

impl Hub {
    /// The hub, which is made at the first call, and again in a child of `fork`.
    pub(crate) fn of_this_process(config: &Config) -> Result<Arc<Hub>> {
        let mut slot = HUB.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(hub) = slot.as_ref().filter(|hub| hub.process == process) {
            return Ok(Arc::clone(hub));
        }
        let (listener, port) = listen_anywhere()?;
        let refusals = Mutex::new(Refusals::new(Arc::clone(&config.notice)));
        let state = Arc::new(State { inner: Mutex::default(), refusals });
        serve::in_background(listener, Arc::clone(&state), None)?;
        let hub = Arc::new(Hub { port, process, state });
        *slot = Some(Arc::clone(&hub));
        Ok(hub)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on ranks may join with this id here.
    pub(crate) fn serve_id(&self, secret: Secret) {
        let mut doors = self.state.lock();
        doors.ended.retain(|(ended, _)| *ended != secret);
        doors.names.insert(handshake::name_of(&secret), secret);
        doors.ids.entry(secret).or_default();
    }

    /// An id that needs no root: its group has one rank. Does nothing where it is another process's.
    pub(crate) fn forget_id(secret: Secret) {
        let slot = HUB.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = slot.as_ref() {
            let mut doors = hub.state.lock();
            doors.ids.remove(&secret);
            doors.names.remove(&handshake::name_of(&secret));
        }
    }

    /// Serves an id on a port of its own until its group is complete: for NCCL_COMM_ID.
    pub(crate) fn serve_fixed(&self, secret: Secret, port: u16) -> Result<()> {
        let listener = listen(port)?;
        self.serve_id(secret);
        serve::in_background(listener, Arc::clone(&self.state), Some(secret))
    }

    pub(crate) fn add_member(&self, secret: Secret, mailbox: Arc<Mailbox>) {
        let mut doors = self.state.lock();
        doors.names.insert(handshake::name_of(&secret), secret);
        doors.members.insert(secret, mailbox);
    }

    pub(crate) fn remove_member(&self, secret: Secret) {
        let mut doors = self.state.lock();
        doors.names.remove(&handshake::name_of(&secret));
        doors.members.remove(&secret);
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Doors> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, name: &Name) -> std::result::Result<(Door, Secret), Status> {
        let doors = self.lock();
        let secret = doors.names.get(name).ok_or(Status::Unknown)?;
        if let Some(mailbox) = doors.members.get(secret) {
            return Ok((Door::Member(Arc::clone(mailbox)), *secret));
        }
        // A failed id stays open to say why.
        let ended = doors.ended.iter().find(|(ended, _)| ended == secret);
        match (doors.ids.contains_key(secret), ended) {
            (true, _) | (_, Some((_, Some(_)))) => Ok((Door::Id(*secret), *secret)),
            (_, Some((_, None))) => Err(Status::Used),
            (false, None) => Err(Status::Unknown),
        }
    }

    /// The id's group is complete or has failed.
    fn end_id(&self, secret: Secret, failure: Option<Failure>, remember: bool) {
        let mut doors = self.lock();
        doors.ids.remove(&secret);
        if remember {
            if doors.ended.len() >= MOST_ENDED
                && let Some((oldest, _)) = doors.ended.pop_front()
            {
                doors.names.remove(&handshake::name_of(&oldest));
            }
            doors.ended.push_back((secret, failure));
        } else {
            doors.names.remove(&handshake::name_of(&secret));
        }
    }
}

/// A port of the system's choice, for both families where there are both.
fn listen_anywhere() -> Result<(TcpListener, u16)> {
    let listener = listen(0)?;
    let port = listener.local_addr().map(|address| address.port());
    Ok((listener, port.map_err(|error| listen_error(0, &error))?))
}

fn listen(port: u16) -> Result<TcpListener> {
    let both: SocketAddr = ([0u16; 8], port).into();
    let v4: SocketAddr = ([0u8; 4], port).into();
    match bound(both) {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            Err(listen_error(port, &error))
        }
        // A host without IPv6.
        Err(_) => bound(v4).map_err(|error| listen_error(port, &error)),
    }
}

fn bound(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if address.port() != 0 {
        // The port may have been another root's a moment ago.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn listen_error(port: u16, error: &std::io::Error) -> Error {
    let address = match port {
        0 => "a free TCP port".into(),
        _ => format!("TCP port {port}"),
    };
    Error::Listen { address, reason: error.to_string() }
}

/// Ends a connection that has been given to somebody else's care: no delay for small frames, and a dead host is noticed.
pub(crate) fn as_link(stream: TcpStream) -> std::io::Result<TcpStream> {
    let socket = Socket::from(stream);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(20))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    Ok(socket.into())
}
