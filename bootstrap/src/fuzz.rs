//! For the fuzzers: what strangers may send.

use crate::handshake::{self, HELLO_BYTES, Hello};
use crate::wire::{
    self, Frame, MOST_FRAME_BYTES, MOST_REQUEST_BYTES, Member, Reply, Request, Secret,
};

const SECRET: Secret = [7; 16];

/// Reads bytes as everything that comes over a connection.
pub fn frames(bytes: &[u8]) {
    if let Ok(Some(Hello::For(..))) = handshake::read_hello(bytes) {
        assert!(bytes.len() >= HELLO_BYTES);
        assert!(matches!(handshake::read_hello(&bytes[..HELLO_BYTES - 1]), Ok(None)));
    }
    let _ = handshake::read_answer(bytes, &SECRET, &[9; 16]);
    let _ = wire::take::<Request>(&mut bytes.to_vec(), MOST_REQUEST_BYTES);
    let _ = wire::take::<Reply>(&mut bytes.to_vec(), MOST_REQUEST_BYTES);
    let _ = wire::take::<Frame>(&mut bytes.to_vec(), MOST_FRAME_BYTES);
    let _ = postcard::from_bytes::<Member>(bytes);
}
