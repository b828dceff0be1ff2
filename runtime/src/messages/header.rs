//! What the sender of a long message says first.

use hetccl_gpu::{Exported, RingName};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 24 + Exported::WIRE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the message.
    pub(super) len_bytes: u64,
    /// The sender's host.
    pub(super) host: u64,
    /// The sender can use a ring, should the receiver ask for one.
    pub(super) rings: bool,
    pub(super) body: Body,
}

/// How the bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Chunks follow.
    Chunks,
    /// The sender waits until the receiver has read them there, or has said that it can't.
    Ipc(Exported),
    /// The sender waits until the receiver has said whether it can use a ring.
    Ask,
    /// Pieces follow in a ring of pinned memory.
    Ring(RingName),
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.host.to_le_bytes());
        bytes[17] = u8::from(self.rings);
        match self.body {
            Body::Chunks => {}
            Body::Ask => bytes[16] = 3,
            Body::Ipc(exported) => {
                bytes[16] = 1;
                bytes[24..].copy_from_slice(&exported.to_bytes());
            }
            Body::Ring(ring) => {
                bytes[16] = 2;
                bytes[24..24 + RingName::WIRE_BYTES].copy_from_slice(&ring.to_bytes());
            }
        }
        bytes
    }

    /// What is not understood is taken for [`Body::Chunks`].
    pub(super) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let exported = Exported::from_bytes(&std::array::from_fn(|i| bytes[24 + i]));
        let body = match (bytes[16], exported) {
            (1, Some(exported)) => Body::Ipc(exported),
            (2, _) => Body::Ring(RingName::from_bytes(&std::array::from_fn(|i| bytes[24 + i]))),
            (3, _) => Body::Ask,
            _ => Body::Chunks,
        };
        Header { len_bytes: word(0), host: word(8), rings: bytes[17] == 1, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_gpu::{IPC_HANDLE_BYTES, IpcHandle, Vendor};

    #[test]
    fn headers_survive_the_wire() {
        let exported = Exported {
            vendor: Vendor::Cuda,
            pid: 1,
            allocation: 2,
            handle: IpcHandle([3; IPC_HANDLE_BYTES]),
            base: 4,
            len_bytes: 5,
            offset: 6,
        };
        let ring = RingName { pid: 1, file: 2, token: [3; 16], slot_bytes: 4, first: 5 };
        for body in [Body::Chunks, Body::Ask, Body::Ipc(exported), Body::Ring(ring)] {
            let header = Header { len_bytes: 1 << 40, host: u64::MAX, rings: true, body };
            assert_eq!(Header::from_bytes(&header.to_bytes()), header);
        }
    }
}
