//! For the fuzzers: what other ranks say of their device memory.

use crate::messages::read_header;
use crate::one_device::read_offer;

/// Reads bytes as a header of a message and as an offer to the rank that works for all.
pub fn device_messages(bytes: &[u8]) {
    read_header(bytes);
    read_offer(bytes);
}
