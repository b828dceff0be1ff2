//! A group of ranks and the wire between them.

use hetccl_core::{Group, Transport};
use hetccl_ucx::Channel;

/// How many collectives of one communicator may be under way; later ones wait for their turn.
///
/// Message tags carry the collective's number modulo a power of two; a number comes again only when the
/// collective that had it before has finished on this rank.
pub(crate) const MAX_OUTSTANDING: usize = 64;

/// What carries a communicator's messages.
pub enum Wire {
    /// UCX, with this communicator's channel.
    Ucx(Box<Channel>),
    /// Messages of the front end's own, such as Open MPI's point-to-point layer.
    Foreign(Box<dyn Transport + Send>),
    /// Nothing: the communicator has no other rank.
    Alone,
}

impl Wire {
    /// The word for reports and settings.
    pub const fn name(&self) -> &'static str {
        match self {
            Wire::Ucx(_) => "ucx",
            Wire::Foreign(_) => "pml",
            Wire::Alone => "self",
        }
    }
}

/// One communicator as this rank sees it. Small: a few hundred bytes and what the wire keeps per peer talked to.
pub struct Communicator {
    pub(crate) context: u32,
    pub(crate) group: Group,
    pub(crate) wire: Wire,
    /// Collectives started so far.
    pub(crate) started: u64,
    /// Collectives finished so far with number = index modulo `lanes`.
    finished: [u64; MAX_OUTSTANDING],
    /// How many collectives may be under way.
    lanes: u64,
}

impl Communicator {
    /// A communicator with a context id that is the same on all its ranks and differs from those of all other
    /// communicators with which it shares a pair of ranks at the same time.
    pub fn new(context: u32, group: Group, wire: Wire) -> Communicator {
        // On inter-communicators the ranks beside the root need not call a rooted collective, so ranks count
        // differently. There, collectives follow each other and the order of messages alone tells them apart.
        let lanes = if group.remote_size.is_some() { 1 } else { MAX_OUTSTANDING as u64 };
        Communicator { context, group, wire, started: 0, finished: [0; MAX_OUTSTANDING], lanes }
    }

    /// This rank's place.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The context id.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// What carries the messages: `ucx`, `pml` or `self`.
    pub fn path(&self) -> &'static str {
        self.wire.name()
    }

    /// The number of the next collective.
    pub(crate) fn take_sequence(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// Whether the collective with this number may send: the one that had its tags before has finished.
    #[inline]
    pub(crate) fn may_run(&self, sequence: u64) -> bool {
        self.finished[(sequence % self.lanes) as usize] == sequence / self.lanes
    }

    /// The number that a collective's messages carry.
    #[inline]
    pub(crate) fn tag_of(&self, sequence: u64) -> u16 {
        (sequence % self.lanes) as u16
    }

    /// Notes that a collective has finished, well or not.
    #[inline]
    pub(crate) fn note_finished(&mut self, sequence: u64) {
        self.finished[(sequence % self.lanes) as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_core::Rank;

    #[test]
    fn a_number_comes_again_only_after_its_predecessor() {
        let group = Group { rank: Rank(0), size: 1, remote_size: None };
        let mut comm = Communicator::new(0, group, Wire::Alone);
        let numbers: Vec<u64> = (0..130).map(|_| comm.take_sequence()).collect();
        assert!(comm.may_run(numbers[63]));
        assert!(!comm.may_run(numbers[64]));
        comm.note_finished(0);
        assert!(comm.may_run(numbers[64]));
        assert!(!comm.may_run(numbers[128]));
        comm.note_finished(64);
        assert!(comm.may_run(numbers[128]));
        assert_eq!(comm.tag_of(65), 1);
    }

    #[test]
    fn inter_communicators_run_one_at_a_time_with_one_tag() {
        let group = Group { rank: Rank(0), size: 1, remote_size: Some(2) };
        let mut comm = Communicator::new(0, group, Wire::Alone);
        let (first, second) = (comm.take_sequence(), comm.take_sequence());
        assert!(comm.may_run(first) && !comm.may_run(second));
        comm.note_finished(first);
        assert!(comm.may_run(second));
        assert_eq!(comm.tag_of(first), comm.tag_of(second));
    }
}
