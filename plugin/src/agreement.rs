//! What all ranks of a job must agree on before hetccl can be used, settled over the PML.
//!
//! A ballot is combined by "and", which may be repeated, so a dissemination does it: after round k everybody knows the
//! ballots of the 2^(k+1) ranks up to itself. Source: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier
//! Synchronization", International Journal of Parallel Programming 17(1), 1988.

use hetccl_core::{Group, MessageTag, Posted, Rank, Region, Transport, TransportError};
use hetccl_mca::{CommunicatorRef, PmlTransport, progress};

use crate::status;

/// The sequence number of agreements; collectives have those below.
const SEQUENCE: u16 = 63;

/// One rank's word, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    /// UCX can be used.
    pub(crate) ucx: bool,
    /// There are no GPUs.
    pub(crate) no_gpus: bool,
    /// UCX takes the device memory here as it is.
    pub(crate) direct: bool,
    /// All digests so far were equal.
    pub(crate) same: bool,
    digest: u64,
}

const BALLOT_BYTES: usize = 12;

impl Ballot {
    /// This rank's word. Ranks with different digests get a result that is not `same`.
    pub(crate) fn new(ucx: bool, no_gpus: bool, direct: bool, digest: u64) -> Ballot {
        Ballot { ucx, no_gpus, direct, same: true, digest }
    }

    fn and(self, other: Ballot) -> Ballot {
        Ballot {
            ucx: self.ucx && other.ucx,
            no_gpus: self.no_gpus && other.no_gpus,
            direct: self.direct && other.direct,
            same: self.same && other.same && self.digest == other.digest,
            digest: self.digest,
        }
    }

    fn to_bytes(self) -> [u8; BALLOT_BYTES] {
        let mut bytes = [0; BALLOT_BYTES];
        bytes[0] = u8::from(self.ucx);
        bytes[1] = u8::from(self.same);
        bytes[2] = u8::from(self.no_gpus);
        bytes[3] = u8::from(self.direct);
        bytes[4..].copy_from_slice(&self.digest.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; BALLOT_BYTES]) -> Ballot {
        let digest = u64::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let [ucx, same, no_gpus, direct] = std::array::from_fn(|i| bytes[i] == 1);
        Ballot { ucx, no_gpus, direct, same, digest }
    }
}

/// The "and" of the ballots of all ranks of an intra-communicator.
///
/// # Errors
/// An MPI error class, when a message fails.
pub(crate) fn agree(comm: CommunicatorRef, mine: Ballot) -> Result<Ballot, i32> {
    let mut wire = PmlTransport::new(comm);
    disseminate(&mut wire, comm.group(), mine)
}

fn disseminate(wire: &mut PmlTransport, group: Group, mine: Ballot) -> Result<Ballot, i32> {
    let (rank, size) = (group.rank.index(), group.len());
    let (mut ballot, mut distance, mut step) = (mine, 1, 0);
    while distance < size {
        let to = Rank::from((rank + distance) % size);
        let from = Rank::from((rank + size - distance) % size);
        ballot = ballot.and(exchange(wire, to, from, step, ballot)?);
        distance *= 2;
        step += 1;
    }
    Ok(ballot)
}

fn exchange(
    wire: &mut PmlTransport,
    to: Rank,
    from: Rank,
    step: u16,
    ballot: Ballot,
) -> Result<Ballot, i32> {
    let tag = MessageTag { sequence: SEQUENCE, step };
    let (out, mut into) = (ballot.to_bytes(), [0; BALLOT_BYTES]);
    let receive = wire.recv(from, tag, Region::of_bytes_mut(&mut into)).map_err(failed)?;
    let send = wire.send(to, tag, Region::of_bytes(&out)).map_err(failed)?;
    finish(wire, receive)?;
    finish(wire, send)?;
    Ok(Ballot::from_bytes(std::hint::black_box(into)))
}

fn finish(wire: &mut PmlTransport, posted: Posted) -> Result<(), i32> {
    if let Posted::Pending(handle) = posted {
        while !wire.test(handle).map_err(failed)? {
            progress();
        }
    }
    Ok(())
}

fn failed(error: TransportError) -> i32 {
    status::of_transport(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_survive_the_wire_and_and() {
        let yes = Ballot::new(true, true, true, 42);
        assert_eq!(Ballot::from_bytes(yes.to_bytes()), yes);
        assert!(yes.and(yes).ucx && yes.and(yes).same && yes.and(yes).no_gpus);
        assert!(yes.and(yes).direct && !yes.and(Ballot::new(true, true, false, 42)).direct);
        assert!(!yes.and(Ballot::new(true, false, true, 42)).no_gpus);
        assert!(!yes.and(Ballot::new(false, true, true, 42)).ucx);
        assert!(!yes.and(Ballot::new(true, true, true, 43)).same);
        assert!(!yes.and(yes.and(Ballot::new(true, true, true, 43))).same);
    }
}
