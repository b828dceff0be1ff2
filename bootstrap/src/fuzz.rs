//! For the fuzzers: what strangers may send.

use crate::wire::{
    self, ANSWER_BYTES, Frame, HELLO_BYTES, MOST_FRAME_BYTES, MOST_REQUEST_BYTES, Member, Reply,
    Request,
};

/// Reads bytes as everything that comes over a connection.
pub fn frames(bytes: &[u8]) {
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>()
        && wire::read_hello(hello).is_some()
    {
        assert!(wire::may_be_hello(bytes));
    }
    let _ = bytes.first_chunk::<ANSWER_BYTES>().and_then(wire::read_answer);
    let _ = wire::take::<Request>(&mut bytes.to_vec(), MOST_REQUEST_BYTES);
    let _ = wire::take::<Reply>(&mut bytes.to_vec(), MOST_REQUEST_BYTES);
    let _ = wire::take::<Frame>(&mut bytes.to_vec(), MOST_FRAME_BYTES);
    let _ = postcard::from_bytes::<Member>(bytes);
}
