//! What each rank tells the one that works for all.

use hetccl_gpu::Exported;

/// Bytes of an offer.
pub(super) const OFFER_BYTES: usize = 16 + 2 * Exported::WIRE_BYTES;

/// A rank's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// All that must be equal on all ranks.
    pub(super) digest: u64,
    /// The buffers are device memory that another process can reach, or empty.
    pub(super) usable: bool,
    /// The contribution lies in the output.
    pub(super) in_place: bool,
    pub(super) input: Option<Exported>,
    pub(super) output: Option<Exported>,
}

const USABLE: u8 = 1;
const IN_PLACE: u8 = 2;

impl Offer {
    pub(super) fn to_bytes(self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        bytes[..8].copy_from_slice(&self.digest.to_le_bytes());
        if self.usable {
            bytes[8] |= USABLE;
        }
        if self.in_place {
            bytes[8] |= IN_PLACE;
        }
        let (input, output) = bytes[16..].split_at_mut(Exported::WIRE_BYTES);
        for (part, place) in [(input, self.input), (output, self.output)] {
            if let Some(place) = place {
                part.copy_from_slice(&place.to_bytes());
            }
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; OFFER_BYTES]) -> Offer {
        let place = |from: usize| Exported::from_bytes(&std::array::from_fn(|i| bytes[from + i]));
        Offer {
            digest: u64::from_le_bytes(std::array::from_fn(|i| bytes[i])),
            usable: bytes[8] & USABLE != 0,
            in_place: bytes[8] & IN_PLACE != 0,
            input: place(16),
            output: place(16 + Exported::WIRE_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_gpu::{IPC_HANDLE_BYTES, IpcHandle, Vendor};

    #[test]
    fn offers_survive_the_wire() {
        let place = Exported {
            vendor: Vendor::Rocm,
            pid: 1,
            allocation: 2,
            handle: IpcHandle([3; IPC_HANDLE_BYTES]),
            base: 4,
            len_bytes: 5,
            offset: 6,
        };
        for (usable, in_place) in [(true, false), (false, true), (true, true)] {
            let offer = Offer { digest: 7, usable, in_place, input: None, output: Some(place) };
            assert_eq!(Offer::from_bytes(&offer.to_bytes()), offer);
        }
    }
}
