//! One communicator's use of a fabric: its message tags, and its table from rank to endpoint.
//!
//! A tag has 64 bits, from the top:
//!
//! | bits | meaning |
//! |---|---|
//! | 20 | context id of the communicator |
//! | 1 | set when the message crosses an inter-communicator |
//! | 19 | rank of the sender in its own group |
//! | 8 | the collective's number, modulo 256 |
//! | 16 | the message's number in its collective |

use hetccl_core::{Group, MessageTag, Rank, TransportError};

use crate::error::Error;
use crate::fabric::Fabric;

/// The largest context id.
pub const MAX_CONTEXT: u32 = (1 << 20) - 1;

/// The largest number of ranks of a group.
pub const MAX_GROUP_SIZE: u32 = 1 << 19;

/// Tells which process a rank is (a key that no other process has, the same in all communicators) and its
/// [address](Fabric::address).
pub type Resolver = Box<dyn FnMut(Rank) -> Result<(u64, Vec<u8>), TransportError> + Send>;

const CONTEXT_SHIFT: u32 = 44;
const REMOTE: u64 = 1 << 43;
const SOURCE_SHIFT: u32 = 24;
const SEQUENCE_SHIFT: u32 = 16;

/// A rank that has no endpoint yet.
const NONE: u32 = u32::MAX;

/// One communicator's use of a fabric. Costs 4 bytes a rank, from the first message on.
pub struct Channel {
    context: u32,
    group: Group,
    endpoints: Vec<u32>,
    resolve: Resolver,
}

impl Channel {
    /// A channel for the communicator `context` in which this process has the place `group`.
    ///
    /// Two communicators that have a pair of processes in common at the same time need different contexts.
    ///
    /// # Errors
    /// [`Error::Limit`] when context or group size do not fit into message tags.
    pub fn new(context: u32, group: Group, resolve: Resolver) -> Result<Channel, Error> {
        let limit = |what, value: u32, limit: u32| {
            if value <= limit {
                return Ok(());
            }
            Err(Error::Limit { what, value: value.into(), limit: limit.into() })
        };
        limit("the communicator's context id", context, MAX_CONTEXT)?;
        limit("the number of ranks", group.size, MAX_GROUP_SIZE)?;
        limit("the number of remote ranks", group.remote_size.unwrap_or(0), MAX_GROUP_SIZE)?;
        Ok(Channel { context, group, endpoints: Vec::new(), resolve })
    }

    /// The number of the endpoint to `peer` in `fabric`, made where there is none yet.
    #[inline]
    pub(crate) fn endpoint(
        &mut self,
        fabric: &mut Fabric,
        peer: Rank,
    ) -> Result<u32, TransportError> {
        match self.endpoints.get(peer.index()) {
            Some(&endpoint) if endpoint != NONE => Ok(endpoint),
            _ => self.connect(fabric, peer),
        }
    }

    /// The tag of a message from this rank to `peer`.
    #[inline]
    pub(crate) fn send_tag(&self, peer: Rank, tag: MessageTag) -> u64 {
        self.tag(self.is_remote(peer), self.group.rank, tag)
    }

    /// The tag of a message from `peer` to this rank.
    #[inline]
    pub(crate) fn recv_tag(&self, peer: Rank, tag: MessageTag) -> u64 {
        match self.is_remote(peer) {
            true => self.tag(true, Rank(peer.0 - self.group.size), tag),
            false => self.tag(false, peer, tag),
        }
    }

    #[inline]
    fn is_remote(&self, peer: Rank) -> bool {
        peer.0 >= self.group.size
    }

    #[inline]
    fn tag(&self, remote: bool, source: Rank, tag: MessageTag) -> u64 {
        u64::from(self.context) << CONTEXT_SHIFT
            | if remote { REMOTE } else { 0 }
            | u64::from(source.0) << SOURCE_SHIFT
            | u64::from(tag.sequence & 0xff) << SEQUENCE_SHIFT
            | u64::from(tag.step)
    }

    #[cold]
    fn connect(&mut self, fabric: &mut Fabric, peer: Rank) -> Result<u32, TransportError> {
        let ranks = self.group.size as usize + self.group.remote_size.unwrap_or(0) as usize;
        if peer.index() >= ranks {
            let reason = format!("the communicator has {ranks} ranks");
            return Err(TransportError::Unreachable { peer, reason });
        }
        let (key, address) = (self.resolve)(peer)?;
        let endpoint = fabric.connect(key, peer, &address)?;
        if self.endpoints.is_empty() {
            self.endpoints = vec![NONE; ranks];
        }
        self.endpoints[peer.index()] = endpoint;
        Ok(endpoint)
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("context", &self.context)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(
        context: u32,
        rank: u32,
        size: u32,
        remote_size: Option<u32>,
    ) -> Result<Channel, Error> {
        let group = Group { rank: Rank(rank), size, remote_size };
        Channel::new(context, group, Box::new(|_| Ok((0, Vec::new()))))
    }

    #[test]
    fn both_sides_of_a_message_agree_on_its_tag() {
        let tag = MessageTag { sequence: 0x1234, step: 0xfffe };
        let lower = channel(MAX_CONTEXT, 2, 5, None).unwrap();
        let upper = channel(MAX_CONTEXT, 4, 5, None).unwrap();
        assert_eq!(lower.send_tag(Rank(4), tag), upper.recv_tag(Rank(2), tag));
        assert_ne!(lower.send_tag(Rank(4), tag), upper.send_tag(Rank(2), tag));
        let last = MessageTag { sequence: 0x1334, step: 0xfffe };
        assert_eq!(
            lower.send_tag(Rank(4), tag),
            lower.send_tag(Rank(4), last),
            "the number is taken modulo 256"
        );
    }

    #[test]
    fn messages_across_an_intercommunicator_are_told_from_those_inside_a_group() {
        let tag = MessageTag { sequence: 7, step: 1 };
        let left = channel(3, 1, 2, Some(3)).unwrap();
        let right = channel(3, 2, 3, Some(2)).unwrap();
        // Left's engine calls right's rank 2 number 2 + 2, right's engine calls left's rank 1 number 3 + 1.
        assert_eq!(left.send_tag(Rank(4), tag), right.recv_tag(Rank(4), tag));
        assert_eq!(right.send_tag(Rank(4), tag), left.recv_tag(Rank(4), tag));
        assert_ne!(right.recv_tag(Rank(1), tag), right.recv_tag(Rank(4), tag));
    }

    #[test]
    fn neighbouring_fields_do_not_overlap() {
        let most = MessageTag { sequence: u16::MAX, step: u16::MAX };
        let none = MessageTag { sequence: 0, step: 0 };
        let last = channel(0, MAX_GROUP_SIZE - 1, MAX_GROUP_SIZE, Some(1)).unwrap();
        assert_eq!(last.send_tag(Rank(0), most) >> 43, 0);
        assert_eq!(last.send_tag(Rank(MAX_GROUP_SIZE), none) >> 43, 1);
        assert_eq!(channel(1, 0, 1, None).unwrap().send_tag(Rank(0), none), 1 << 44);
    }

    #[test]
    fn what_does_not_fit_into_a_tag_is_refused() {
        let error = channel(MAX_CONTEXT + 1, 0, 2, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the communicator's context id is 1048576, at most 1048575 is possible over UCX"
        );
        assert!(channel(0, 0, MAX_GROUP_SIZE + 1, None).is_err());
        assert!(channel(0, 0, 1, Some(MAX_GROUP_SIZE + 1)).is_err());
    }
}
