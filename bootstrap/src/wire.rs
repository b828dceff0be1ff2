//! The bytes that processes send each other once they know that they belong together (`handshake.rs`).
//!
//! ```text
//! frame      length (4 bytes), then a Request, Reply or Frame         postcard's encoding
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::error::Failure;
use crate::interfaces::Address;

/// The protocol's version, and the unique id's.
pub const VERSION: u16 = 2;

/// The longest frame between ranks of one group: an allgather's result.
pub(crate) const MOST_FRAME_BYTES: usize = 1 << 30;
/// The longest request to a process's port.
pub(crate) const MOST_REQUEST_BYTES: usize = (64 << 20) + 256;

/// A random name for an id or a rank; who knows it may talk to it.
pub(crate) type Secret = [u8; 16];

/// One rank as the others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub secret: Secret,
    pub port: u16,
    pub addresses: Vec<Address>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
}

/// What a process asks of another's port, after the hello.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// To a root: a rank is here.
    CheckIn(CheckIn),
    /// To a root: a rank has failed before its tree was complete.
    Report { level: u8, failure: Failure },
    /// To a root, from the first that arrived: who is missing?
    Missing,
    /// To a root: who was the n-th to arrive?
    Arrival { level: u8, index: u32 },
    /// To a rank: the connection becomes a link of a tree.
    Link { context: u64, level: u8, index: u32, who: Who },
    /// To a rank: a message.
    Message { context: u64, from: u32, tag: u64, payload: ByteBuf },
    /// To a rank: the connection is for the user of the group.
    Stream { context: u64, from: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckIn {
    pub level: u8,
    /// The place among those that this root collects, and their number.
    pub slot: u32,
    pub slots: u32,
    /// Ranks of the group.
    pub size: u32,
    /// Of all ids, so that ranks with different lists notice.
    pub ids_digest: u64,
    pub member: Member,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The n-th to arrive, from 0, and the parent in the tree.
    Assigned {
        index: u32,
        parent: Option<Member>,
    },
    Missing {
        slots: Vec<u32>,
    },
    Arrival(Option<Who>),
    Done,
    Refused(Failure),
}

/// What travels on a tree's links.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Frame {
    Data {
        operation: Operation,
        number: u64,
        entries: Vec<(u32, ByteBuf)>,
    },
    /// The group has failed.
    Fail(Failure),
    /// The sender has left in good order.
    Bye,
    /// The sender has nothing to say, and is there.
    Alive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Table,
    Allgather,
    Barrier,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Table => "join",
            Operation::Allgather => "allgather",
            Operation::Barrier => "barrier",
        }
    }
}

impl Member {
    pub(crate) fn who(&self) -> Who {
        Who { rank: self.rank, host: self.host.clone(), pid: self.pid }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} (process {} on {})", self.rank, self.pid, self.host)
    }
}

/// A value with its length before it.
pub(crate) fn frame<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(value, vec![0; 4]).map_err(io::Error::other)?;
    let length = bytes.len() - 4;
    if length > MOST_FRAME_BYTES {
        let text =
            format!("{length} bytes are too many for one frame (at most {MOST_FRAME_BYTES})");
        return Err(io::Error::other(text));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// The first value of the buffer, which it is taken out of; `None` when there is more to come.
pub(crate) fn take<T: DeserializeOwned>(
    buffer: &mut Vec<u8>,
    most: usize,
) -> io::Result<Option<T>> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > most {
        let text = format!("a frame of {length} bytes, more than the {most} that are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
    let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let value = postcard::from_bytes(body).map_err(damaged)?;
    buffer.drain(..4 + length);
    Ok(Some(value))
}

/// Sends a request on a blocking connection and waits for the reply. What comes after the reply stays unread: it may be
/// meant for somebody else.
pub(crate) fn ask(stream: &mut TcpStream, request: &Request) -> io::Result<Reply> {
    stream.write_all(&frame(request)?)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes(head) as usize;
    if length > MOST_REQUEST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply that is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The next reply on a connection that carries nothing else.
pub(crate) fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Reply> {
    let mut piece = [0; 4096];
    loop {
        if let Some(reply) = take(buffer, MOST_REQUEST_BYTES)? {
            return Ok(reply);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// FNV-1a, 64 bits: for names that all ranks derive alike, not against an adversary.
pub(crate) fn digest(bytes: &[u8], start: u64) -> u64 {
    let basis = 0xcbf2_9ce4_8422_2325 ^ start;
    bytes.iter().fold(basis, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_frames_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = take::<Request>(&mut bytes.clone(), MOST_REQUEST_BYTES);
            let _ = take::<Reply>(&mut bytes.clone(), MOST_REQUEST_BYTES);
            if let Some(head) = bytes.first_chunk_mut::<4>() {
                *head = [0, 0, 0, 40];
            }
            let _ = take::<Request>(&mut bytes.clone(), MOST_REQUEST_BYTES);
            let _ = take::<Frame>(&mut bytes, MOST_FRAME_BYTES);
        }

        #[test]
        fn frames_come_out_as_they_went_in(payload in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let message = Request::Message { context: 1, from: 2, tag: 3, payload: ByteBuf::from(payload.clone()) };
            let mut bytes = frame(&message).unwrap();
            let tail = bytes.split_off(cut.min(bytes.len() - 1));
            prop_assert!(take::<Request>(&mut bytes, MOST_REQUEST_BYTES).unwrap().is_none());
            bytes.extend(tail);
            bytes.push(0xEE);
            match take::<Request>(&mut bytes, MOST_REQUEST_BYTES).unwrap() {
                Some(Request::Message { payload: read, .. }) => prop_assert_eq!(read.into_vec(), payload),
                other => prop_assert!(false, "{:?}", other),
            }
            prop_assert_eq!(bytes, vec![0xEE]);
        }
    }
}
