//! The tree of a group: links to a parent and at most some children, and what travels on them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_bytes::ByteBuf;

use crate::error::{Error, Failure};
use crate::wire::{self, Frame, MOST_FRAME_BYTES, Operation, Who};

/// Children of a rank in the tree of one root.
pub(crate) const FAN_OUT: u32 = 8;
/// [`Frame::Alive`] on the wire.
const ALIVE: [u8; 5] = [0, 0, 0, 1, 3];
/// How often an abort is looked for.
const SLICE: Duration = Duration::from_millis(50);
/// A neighbour hears from this rank so many times in the time after which silence is a failure.
const PULSES: u32 = 4;
/// How long a word about a failure may take to be written to a peer that does not read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A call, its number, and each rank's bytes.
type Data = (Operation, u64, Vec<(u32, ByteBuf)>);

/// Something that ends the group.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another rank or the root told it.
    Heard(Failure),
    /// It was noticed here.
    Noticed(Failure),
    Aborted,
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Error {
        match stop {
            Stop::Heard(failure) | Stop::Noticed(failure) => Error::Group(failure),
            Stop::Aborted => Error::Aborted,
        }
    }
}

/// A connection to a neighbour in the tree.
pub(crate) struct Link {
    pub stream: TcpStream,
    pub who: Who,
    buffer: Vec<u8>,
    left: bool,
    /// When something came last, and when this rank last said that it is there.
    heard: Instant,
    said: Instant,
}

impl Link {
    /// Over a stream that does not block.
    pub(crate) fn new(stream: TcpStream, who: Who) -> Link {
        let now = Instant::now();
        Link { stream, who, buffer: Vec::new(), left: false, heard: now, said: now }
    }

    /// Reads what is there, without waiting. An error is the end of the connection.
    pub(crate) fn read(&mut self) -> Result<(), Stop> {
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(self.gone("closed its connection")),
                Ok(count) => {
                    self.buffer.extend_from_slice(&piece[..count]);
                    self.heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.gone(&format!("is gone ({error})"))),
            }
        }
        let alive = self.buffer.chunks_exact(ALIVE.len()).take_while(|frame| **frame == ALIVE);
        let len = alive.count() * ALIVE.len();
        self.buffer.drain(..len);
        Ok(())
    }

    /// Says that this rank is there, where the neighbour has room for it.
    fn say_alive(&mut self, now: Instant) {
        if wait_for(&[&self.stream], PollFlags::POLLOUT, Duration::ZERO)[0] {
            // A socket that is writable takes a few bytes at once; one that has ended is noticed when it is read.
            let _ended = self.stream.write(&ALIVE);
        }
        self.said = now;
    }

    /// The next data frame, if it is complete.
    fn take(&mut self) -> Result<Option<Data>, Stop> {
        let mut taken = wire::take(&mut self.buffer, MOST_FRAME_BYTES);
        while let Ok(Some(Frame::Alive)) = taken {
            taken = wire::take(&mut self.buffer, MOST_FRAME_BYTES);
        }
        match taken {
            Ok(None | Some(Frame::Alive)) => Ok(None),
            Ok(Some(Frame::Data { operation, number, entries })) => {
                Ok(Some((operation, number, entries)))
            }
            Ok(Some(Frame::Fail(failure))) => Err(Stop::Heard(failure)),
            Ok(Some(Frame::Bye)) => {
                self.left = true;
                Ok(None)
            }
            Err(error) => Err(self.gone(&format!("sent bytes that make no sense ({error})"))),
        }
    }

    fn gone(&self, how: &str) -> Stop {
        let reason = format!("{} {how}", self.who);
        Stop::Noticed(Failure { ranks: vec![self.who.rank], noticed_by: None, reason })
    }

    fn write(&mut self, bytes: &[u8], until: Instant, abort: &AtomicBool) -> Result<(), Stop> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(self.gone("takes nothing")),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if abort.load(Ordering::Acquire) {
                        return Err(Stop::Aborted);
                    }
                    if Instant::now() >= until {
                        return Err(self.gone("does not read what it is sent"));
                    }
                    wait_for(&[&self.stream], PollFlags::POLLOUT, SLICE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // The reason may have come before the end.
                    let why = self.read().and_then(|()| self.take().map(drop));
                    if let Err(Stop::Heard(failure)) = why {
                        return Err(Stop::Heard(failure));
                    }
                    if let Err(Stop::Heard(failure)) = self.take() {
                        return Err(Stop::Heard(failure));
                    }
                    return Err(self.gone(&format!("is gone ({error})")));
                }
            }
        }
        Ok(())
    }
}

/// A rank's place in the tree.
#[derive(Default)]
pub(crate) struct Tree {
    pub parent: Option<Link>,
    pub children: Vec<Link>,
    /// Collective calls so far.
    pub number: u64,
    /// Edges to the root.
    pub depth: u32,
    /// How long a neighbour may be silent.
    pub silence: Option<Duration>,
}

impl Tree {
    pub(crate) fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        self.parent.iter_mut().chain(&mut self.children)
    }

    /// Everybody's entries at everybody: up the tree, and down again.
    pub(crate) fn exchange(
        &mut self,
        operation: Operation,
        mut entries: Vec<(u32, ByteBuf)>,
        timeout: Duration,
        abort: &AtomicBool,
    ) -> Result<Vec<(u32, ByteBuf)>, Stop> {
        let number = self.number;
        self.number += 1;
        // The lowest wait the shortest, so that the one who waits for the culprit itself is the first to say so.
        let patience = timeout + Duration::from_millis(500) * 12u32.saturating_sub(self.depth);
        let until = Instant::now() + patience;
        let mut waiting: Vec<usize> = (0..self.children.len()).collect();
        while !waiting.is_empty() {
            self.wait_for_any(until, abort).map_err(|stop| match stop {
                Some(stop) => stop,
                None => {
                    let late = waiting.iter().filter_map(|&child| self.children.get(child));
                    late_stop(operation, number, late.map(|link| &link.who), patience)
                }
            })?;
            let mut still = Vec::new();
            for child in waiting {
                match next(&mut self.children[child], operation, number)? {
                    Some(more) => entries.extend(more),
                    None => still.push(child),
                }
            }
            waiting = still;
        }
        if let Some(parent) = &mut self.parent {
            parent.write(&data(operation, number, entries)?, until, abort)?;
            entries = loop {
                if let Some(result) =
                    self.parent.as_mut().map(|p| next(p, operation, number)).transpose()?.flatten()
                {
                    break result;
                }
                self.wait_for_any(until, abort).map_err(|stop| match stop {
                    Some(stop) => stop,
                    None => late_stop(
                        operation,
                        number,
                        self.parent.iter().map(|link| &link.who),
                        patience,
                    ),
                })?;
            };
        }
        if !self.children.is_empty() {
            let bytes = data(operation, number, entries)?;
            for child in &mut self.children {
                child.write(&bytes, until, abort)?;
            }
            let Ok(Some(Frame::Data { entries, .. })) =
                wire::take(&mut bytes.clone(), MOST_FRAME_BYTES)
            else {
                return Err(noticed(Vec::new(), "a frame of this process can't be read".into()));
            };
            return Ok(entries);
        }
        Ok(entries)
    }

    /// Reads from every neighbour that has something, after waiting for one. `Err(None)`: the time is over.
    fn wait_for_any(&mut self, until: Instant, abort: &AtomicBool) -> Result<(), Option<Stop>> {
        if abort.load(Ordering::Acquire) {
            return Err(Some(Stop::Aborted));
        }
        let now = Instant::now();
        if now >= until {
            return Err(None);
        }
        let streams: Vec<&TcpStream> =
            self.parent.iter().chain(&self.children).map(|link| &link.stream).collect();
        let ready = wait_for(&streams, PollFlags::POLLIN, SLICE.min(until - now));
        self.read_ready(&ready).and_then(|()| self.pulse()).map_err(Some)
    }

    /// How often [`Tree::pulse`] has something to do.
    pub(crate) fn pulse_every(&self) -> Option<Duration> {
        self.silence.map(|silence| silence / PULSES)
    }

    /// Says that this rank is there, where that is due, and whether a neighbour has been silent for too long.
    fn pulse(&mut self) -> Result<(), Stop> {
        let (Some(silence), Some(every)) = (self.silence, self.pulse_every()) else {
            return Ok(());
        };
        let now = Instant::now();
        for link in self.links().filter(|link| !link.left) {
            if now.duration_since(link.said) >= every {
                link.say_alive(now);
            }
            if now.duration_since(link.heard) >= silence {
                return Err(link.gone(&format!(
                    "has said nothing for {} s: it is stopped, or the network between the hosts is broken",
                    silence.as_secs()
                )));
            }
        }
        Ok(())
    }

    /// Whether all neighbours are there, without waiting.
    pub(crate) fn check(&mut self) -> Result<(), Stop> {
        let streams: Vec<&TcpStream> = self
            .parent
            .iter()
            .chain(&self.children)
            .filter(|link| !link.left)
            .map(|link| &link.stream)
            .collect();
        if streams.is_empty() {
            return Ok(());
        }
        let ready = wait_for(&streams, PollFlags::POLLIN, Duration::ZERO);
        let mut ready = ready.into_iter();
        for link in self.parent.iter_mut().chain(&mut self.children).filter(|link| !link.left) {
            if ready.next() == Some(true) {
                read_or_reason(link)?;
            }
        }
        self.pulse()
    }

    /// The neighbours' connections.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &TcpStream> {
        self.parent.iter().chain(&self.children).map(|link| &link.stream)
    }

    fn read_ready(&mut self, ready: &[bool]) -> Result<(), Stop> {
        for (link, ready) in self.parent.iter_mut().chain(&mut self.children).zip(ready) {
            if *ready {
                read_or_reason(link)?;
            }
        }
        Ok(())
    }

    /// Tells the neighbours, as far as they listen, and hangs up.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.last_words(&Frame::Fail(failure.clone()));
    }

    /// Leaves in good order.
    pub(crate) fn leave(&mut self) {
        self.last_words(&Frame::Bye);
    }

    fn last_words(&mut self, frame: &Frame) {
        let until = Instant::now() + LAST_WORDS;
        if let Ok(bytes) = wire::frame(frame) {
            for link in self.links() {
                // Nobody is left to tell when this fails.
                let _gone = link.write(&bytes, until, &AtomicBool::new(false));
            }
        }
        self.parent = None;
        self.children.clear();
    }
}

/// Reads; when the connection has ended, a reason that came before the end is what counts.
fn read_or_reason(link: &mut Link) -> Result<(), Stop> {
    let Err(end) = link.read() else { return peek(link) };
    peek(link)?;
    if link.left { Ok(()) } else { Err(end) }
}

/// Looks for a failure or a farewell without taking data.
fn peek(link: &mut Link) -> Result<(), Stop> {
    let mut rest = link.buffer.as_slice();
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let Some((body, after)) = after.split_at_checked(u32::from_be_bytes(*head) as usize) else {
            break;
        };
        // Data frames begin with 0, the index of their variant.
        if body.first() != Some(&0) {
            match postcard::from_bytes(body) {
                Ok(Frame::Fail(failure)) => return Err(Stop::Heard(failure)),
                Ok(Frame::Bye) => link.left = true,
                _ => {}
            }
        }
        rest = after;
    }
    Ok(())
}

/// A neighbour's part of one call, when it has come.
fn next(
    link: &mut Link,
    operation: Operation,
    number: u64,
) -> Result<Option<Vec<(u32, ByteBuf)>>, Stop> {
    match link.take()? {
        Some((theirs, n, entries)) if (theirs, n) == (operation, number) => Ok(Some(entries)),
        Some((theirs, n, _)) => {
            let reason = format!(
                "ranks disagree about what they are doing: {} is in {} number {n}, its neighbour in {} number {number}",
                link.who,
                theirs.name(),
                operation.name(),
            );
            Err(noticed(vec![link.who.rank], reason))
        }
        None if link.left => Err(link.gone("has left the group")),
        None => Ok(None),
    }
}

fn data(operation: Operation, number: u64, entries: Vec<(u32, ByteBuf)>) -> Result<Vec<u8>, Stop> {
    let frame = wire::frame(&Frame::Data { operation, number, entries });
    frame.map_err(|error| noticed(Vec::new(), error.to_string()))
}

fn late_stop<'a>(
    operation: Operation,
    number: u64,
    late: impl Iterator<Item = &'a Who>,
    after: Duration,
) -> Stop {
    let late: Vec<&Who> = late.collect();
    let words: Vec<String> = late.iter().map(|who| who.to_string()).collect();
    let reason = format!(
        "nothing came from {} in {} number {number} for {} s",
        words.join(", "),
        operation.name(),
        after.as_secs()
    );
    noticed(late.iter().map(|who| who.rank).collect(), reason)
}

pub(crate) fn noticed(ranks: Vec<u32>, reason: String) -> Stop {
    Stop::Noticed(Failure { ranks, noticed_by: None, reason })
}

/// Which of the streams are ready.
pub(crate) fn wait_for(streams: &[&TcpStream], flags: PollFlags, at_most: Duration) -> Vec<bool> {
    let mut entries: Vec<PollFd> =
        streams.iter().map(|stream| PollFd::new(stream.as_fd(), flags)).collect();
    let millis = if at_most.is_zero() { 0 } else { at_most.as_millis().max(1) };
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    if poll(&mut entries, timeout).is_err() {
        return vec![false; streams.len()];
    }
    entries.iter().map(|entry| entry.any().unwrap_or(true)).collect()
}

/// For links from connections that block so far.
pub(crate) fn link_over(stream: TcpStream, who: Who) -> io::Result<Link> {
    Ok(Link::new(crate::hub::as_link(stream)?, who))
}
