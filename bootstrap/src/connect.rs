//! Connecting to a process that has several addresses, some of which lead nowhere or to somebody else.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Attempt, Error, Result};
use crate::handshake::{self, ANSWER_BYTES, Answer, Nonce, Status};
use crate::id::UniqueId;
use crate::interfaces::{self, Address};
use crate::wire::{Member, Secret};

/// The next address is tried when the one before has not answered after this long (RFC 8305 calls it the connection
/// attempt delay), or has failed.
const NEXT_AFTER: Duration = Duration::from_millis(100);
/// Between rounds through all addresses, growing to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How often an abort is looked for.
const SLICE: Duration = Duration::from_millis(50);

/// A process and the id or rank in it that is wanted.
pub(crate) struct Target<'a> {
    /// For errors.
    pub whom: &'a str,
    pub addresses: &'a [Address],
    pub port: u16,
    pub secret: Secret,
    /// It listens as long as it lives: where every address refuses, its process has ended, and there is no use in trying again.
    pub listens: bool,
}

impl<'a> Target<'a> {
    /// A rank, called `whom` in errors.
    pub(crate) fn of(member: &'a Member, whom: &'a str) -> Target<'a> {
        let Member { addresses, port, secret, .. } = member;
        Target { whom, addresses, port: *port, secret: *secret, listens: true }
    }

    /// The process that made an id, which may not listen yet or no more.
    pub(crate) fn maker(id: &'a UniqueId, whom: &'a str) -> Target<'a> {
        let UniqueId { addresses, port, secret, .. } = id;
        Target { whom, addresses, port: *port, secret: *secret, listens: false }
    }
}

/// What became of an address.
enum Progress {
    Connecting(Socket),
    Asked(TcpStream, Vec<u8>, Nonce),
    Failed(Failed),
}

/// Why an address did not lead there.
struct Failed {
    why: String,
    /// The host says that nobody listens.
    refused: bool,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        let refused = error.kind() == ErrorKind::ConnectionRefused;
        let why = match refused {
            true => "connection refused, nobody listens there".into(),
            false => error.to_string(),
        };
        Failed { why, refused }
    }
}

struct Trial {
    address: SocketAddr,
    progress: Progress,
}

/// Connects to the first address that leads to the one who knows the secret. The result is a blocking connection past the
/// answer to the hello.
///
/// All addresses are tried, each some time after the one before, and again as long as `until`: who is wanted may not
/// listen yet.
///
/// # Errors
/// [`Error::Unreachable`] with what became of each address; [`Error::Version`] when another hetccl answers.
pub(crate) fn reach(target: &Target, until: Instant, abort: &AtomicBool) -> Result<TcpStream> {
    let mut pause = PAUSE.0;
    let started = Instant::now();
    loop {
        let trials = match one_round(target, until, abort)? {
            Ok(stream) => return Ok(stream),
            Err(trials) => trials,
        };
        if Instant::now() + pause >= until || (target.listens && all_refuse(&trials)) {
            return Err(unreachable(target, &trials, started.elapsed()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Whether a process that listens as long as it lives has ended. One that does not answer within a moment is taken to be alive.
pub(crate) fn has_ended(target: &Target, abort: &AtomicBool) -> bool {
    let round = one_round(target, Instant::now() + 2 * NEXT_AFTER, abort);
    matches!(round, Ok(Err(trials)) if all_refuse(&trials))
}

fn all_refuse(trials: &[Trial]) -> bool {
    let refuses =
        |trial: &Trial| matches!(&trial.progress, Progress::Failed(failed) if failed.refused);
    !trials.is_empty() && trials.iter().all(refuses)
}

/// Tries each address once.
fn one_round(
    target: &Target,
    until: Instant,
    abort: &AtomicBool,
) -> Result<std::result::Result<TcpStream, Vec<Trial>>> {
    let mut trials: Vec<Trial> = Vec::new();
    let mut waiting_addresses = target.addresses.iter();
    let mut next_at = Instant::now();
    loop {
        if abort.load(Ordering::Acquire) {
            return Err(Error::Aborted);
        }
        let now = Instant::now();
        let all_failed = trials.iter().all(|trial| matches!(trial.progress, Progress::Failed(_)));
        if now >= next_at || all_failed {
            match waiting_addresses.next() {
                Some(address) => {
                    let address = SocketAddr::new(address.ip, target.port);
                    trials.push(Trial { address, progress: start(address) });
                    next_at = now + NEXT_AFTER;
                }
                None if all_failed => return Ok(Err(trials)),
                None => {}
            }
        }
        wait(
            &trials,
            SLICE.min(until.saturating_duration_since(now)).min(match waiting_addresses.len() {
                0 => SLICE,
                _ => next_at.saturating_duration_since(now),
            }),
        );
        for at in 0..trials.len() {
            if let Some(stream) = trials[at].advance(target)? {
                trials.into_iter().for_each(|trial| trial.end(target));
                return Ok(Ok(stream));
            }
        }
        if now >= until {
            for trial in &mut trials {
                if !matches!(trial.progress, Progress::Failed(_)) {
                    let why = "no answer".into();
                    trial.progress = Progress::Failed(Failed { why, refused: false });
                }
            }
            return Ok(Err(trials));
        }
    }
}

fn start(address: SocketAddr) -> Progress {
    let connecting = || -> io::Result<Socket> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    match connecting() {
        Ok(socket) => Progress::Connecting(socket),
        Err(error) => Progress::Failed(error.into()),
    }
}

/// Waits until one of them can go on.
fn wait(trials: &[Trial], at_most: Duration) {
    let entries = trials.iter().filter_map(|trial| match &trial.progress {
        Progress::Connecting(socket) => Some(PollFd::new(socket.as_fd(), PollFlags::POLLOUT)),
        Progress::Asked(stream, ..) => Some(PollFd::new(stream.as_fd(), PollFlags::POLLIN)),
        Progress::Failed(_) => None,
    });
    let timeout = PollTimeout::try_from(at_most.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
    // An interruption is a short wait.
    let _interrupted = poll(&mut entries.collect::<Vec<_>>(), timeout);
}

impl Trial {
    /// Hangs up, but not without a hello: the other side would take it for a stranger's.
    fn end(self, target: &Target) {
        if let Progress::Connecting(socket) = self.progress {
            let _too_late = ask(socket, &target.secret);
        }
    }

    /// Goes as far as it can without waiting. The connection, when this one has won.
    fn advance(&mut self, target: &Target) -> Result<Option<TcpStream>> {
        let nothing = Failed { why: String::new(), refused: false };
        let progress = std::mem::replace(&mut self.progress, Progress::Failed(nothing));
        let next = match progress {
            Progress::Failed(failed) => Ok(Progress::Failed(failed)),
            Progress::Connecting(socket) => ask(socket, &target.secret),
            Progress::Asked(mut stream, mut buffer, nonce) => {
                let whose = || format!("{} at {}", target.whom, self.address);
                match read_answer(&mut stream, &mut buffer, &target.secret, &nonce) {
                    Err(error) => Err(error),
                    Ok(None) => Ok(Progress::Asked(stream, buffer, nonce)),
                    Ok(Some(Answer::OtherVersion(theirs))) => {
                        return Err(Error::Version { whose: whose(), theirs });
                    }
                    Ok(Some(Answer::OtherRelease(theirs))) => {
                        let theirs = theirs.to_string();
                        return Err(Error::Release { whose: whose(), theirs });
                    }
                    Ok(Some(Answer::Refused(Status::Used))) => {
                        let reason = "this unique id has been used: its communicator is complete, make a \
                                  new id for another one";
                        return Err(Error::WrongUse(reason.into()));
                    }
                    Ok(Some(Answer::Refused(_))) => Err(io::Error::other(
                        "a process of another job answers there, which does not know this secret",
                    )),
                    Ok(Some(Answer::Welcome(theirs))) => {
                        let proof = handshake::proof(&target.secret, &theirs, &nonce);
                        let proved = stream.set_nonblocking(false);
                        match proved.and_then(|()| stream.write_all(&proof)) {
                            Ok(()) => return Ok(Some(stream)),
                            Err(error) => Err(error),
                        }
                    }
                }
            }
        };
        self.progress = next.unwrap_or_else(|error| Progress::Failed(error.into()));
        Ok(None)
    }
}

/// Says the hello once the connection stands.
fn ask(socket: Socket, secret: &Secret) -> io::Result<Progress> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    if socket.peer_addr().is_err() {
        return Ok(Progress::Connecting(socket));
    }
    socket.set_tcp_nodelay(true)?;
    let mut stream = TcpStream::from(socket);
    let nonce: Nonce = rand::random();
    // A new connection has room for these few bytes.
    stream.write_all(&handshake::hello(secret, &nonce))?;
    Ok(Progress::Asked(stream, Vec::new(), nonce))
}

/// The answer, or `None` while it is not there.
fn read_answer(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    secret: &Secret,
    nonce: &Nonce,
) -> io::Result<Option<Answer>> {
    let mut piece = [0; ANSWER_BYTES];
    loop {
        if let Some(answer) = handshake::read_answer(buffer, secret, nonce)? {
            return Ok(Some(answer));
        }
        let missing = ANSWER_BYTES - buffer.len();
        match stream.read(&mut piece[..missing]) {
            Ok(0) => return Err(io::Error::other("closed without an answer")),
            Ok(count) => buffer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn unreachable(target: &Target, trials: &[Trial], after: Duration) -> Error {
    let tried = target.addresses.iter().map(|known| {
        let address = SocketAddr::new(known.ip, target.port);
        let outcome = trials.iter().find(|trial| trial.address == address);
        let outcome = match outcome.map(|trial| &trial.progress) {
            Some(Progress::Failed(Failed { why, .. })) => {
                format!("{why} ({:.0} s)", after.as_secs_f64())
            }
            _ => "not tried, the time was over".into(),
        };
        let via = interfaces::way_to(address).map(|way| format!("{} {}", way.interface, way.ip));
        Attempt { address, interface: known.interface.clone(), via, outcome }
    });
    Error::Unreachable {
        whom: target.whom.to_owned(),
        tried: tried.collect(),
        here: interfaces::here(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn here(port: u16) -> Target<'static> {
        static LOCAL: std::sync::LazyLock<Vec<Address>> = std::sync::LazyLock::new(|| {
            vec![Address { ip: [127, 0, 0, 1].into(), interface: "lo".into() }]
        });
        Target { whom: "rank 5", addresses: &LOCAL, port, secret: [1; 16], listens: false }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(400)
    }

    #[test]
    fn a_port_where_nobody_listens_is_named() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = reach(&here(port), soon(), &AtomicBool::new(false)).unwrap_err().to_string();
        for word in ["rank 5", "127.0.0.1", "lo there", "refused", "NCCL_SOCKET_IFNAME"] {
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn who_listens_as_long_as_it_lives_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target { listens: true, ..here(listener.local_addr().unwrap().port()) };
        let on = AtomicBool::new(false);
        assert!(!has_ended(&target, &on));
        drop(listener);
        assert!(has_ended(&target, &on));
        let start = Instant::now();
        let error = reach(&target, start + Duration::from_secs(60), &on).unwrap_err().to_string();
        assert!(error.contains("refused"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn strangers_and_the_silent_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = reach(&here(port), soon(), &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(silent.contains("no answer"), "{silent}");
        let talker = std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_err() {
                    return;
                }
                let mut end = Vec::new();
                // Who hangs up with our words unread resets the connection.
                let _reset = stream.read_to_end(&mut end);
                if end.starts_with(b"stop") {
                    return;
                }
            }
        });
        // The talker is a thread that may have to wait for its turn.
        let until = Instant::now() + Duration::from_secs(2);
        let stranger = reach(&here(port), until, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(stranger.contains("not hetccl"), "{stranger}");
        TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"stop").unwrap();
        talker.join().unwrap();
    }

    #[test]
    fn an_abort_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let start = Instant::now();
        let long = start + Duration::from_secs(60);
        let result = reach(&here(port), long, &AtomicBool::new(true));
        assert_eq!(result.map(drop), Err(Error::Aborted));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
