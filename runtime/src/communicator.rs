//! A group of ranks and the wire between them.

use std::collections::VecDeque;
use std::sync::Arc;

use hetccl_core::topology::{self, Hierarchy, Identity, Topology};
use hetccl_core::{Group, Transport};
use hetccl_gpu::CclComm;
use hetccl_ucx::Channel;

use crate::library::GroupLibrary;
use crate::one_device::Asking;
use crate::process::Request;
use crate::settings::Settings;

/// How many nonblocking collectives of one communicator may be under way; later ones wait for their turn.
///
/// Message tags carry the collective's number modulo this; a number comes again only when the collective that had it
/// before has finished on this rank. Transports keep 6 bits of it.
const NONBLOCKING_LANES: usize = 56;
/// The number that nonblocking neighbourhood collectives carry, one after the other.
const NEIGHBOUR_LANE: u16 = 56;
/// The number that blocking collectives carry, one after the other.
const BLOCKING_LANE: u16 = 62;

/// Who waits for a collective.
///
/// Ranks start the nonblocking collectives of a communicator in the same order, and the blocking ones in the same order,
/// but programs that mix the orders of the two kinds, which MPI forbids, work as they do elsewhere in Open MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The caller waits for it before it starts another.
    Blocking,
    /// Several may be under way.
    Nonblocking,
    /// A nonblocking neighbourhood collective: ranks without neighbours need not call it, so ranks count differently.
    /// They follow each other.
    NonblockingNeighbour,
}

impl Mode {
    /// The modes whose collectives follow each other and share one tag.
    const IN_TURN: [(Mode, u16); 2] =
        [(Mode::Blocking, BLOCKING_LANE), (Mode::NonblockingNeighbour, NEIGHBOUR_LANE)];

    /// The mode's place in [`IN_TURN`](Mode::IN_TURN).
    #[inline]
    const fn in_turn(self) -> Option<usize> {
        match self {
            Mode::Blocking => Some(0),
            Mode::NonblockingNeighbour => Some(1),
            Mode::Nonblocking => None,
        }
    }
}

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
    /// Whether some rank may have device memory; the same on all ranks.
    pub(crate) any_memory: bool,
    /// Whether the wire takes every rank's device memory as it is; the same on all ranks.
    pub(crate) direct: bool,
    /// Whether all ranks use one device; the same on all ranks.
    pub(crate) one_device: bool,
    /// The machine under the ranks, where collectives may go by its groups; the same on all ranks.
    pub(crate) hierarchy: Option<Arc<Hierarchy>>,
    /// The same with the groups in which vendors' libraries work; the same on all ranks.
    with_libraries: Option<Arc<Hierarchy>>,
    /// This rank's communicator in its vendor's library, if it is in such a group.
    pub(crate) library: Option<Box<GroupLibrary>>,
    /// Collectives under way with steps of the vendor's library, in the order in which they were started. They follow each other: its
    /// calls must come in the same order on all ranks.
    library_turns: VecDeque<Turn>,
    /// What rank 0 has said when it was asked to work for all.
    pub(crate) asking: Asking,
    /// Nonblocking collectives started so far.
    started: u64,
    /// Nonblocking collectives finished so far with number = index modulo `lanes`.
    finished: [u64; NONBLOCKING_LANES],
    /// How many nonblocking collectives may be under way.
    lanes: u64,
    /// Collectives started and finished of the modes that follow each other.
    in_turn: [(u64, u64); 2],
}

impl Communicator {
    /// A communicator with a context id that is the same on all its ranks and differs from those of all other
    /// communicators with which it shares a pair of ranks at the same time.
    pub fn new(context: u32, group: Group, wire: Wire) -> Communicator {
        // On inter-communicators the ranks beside the root need not call a rooted collective, so ranks count
        // differently. There, collectives follow each other and the order of messages alone tells them apart.
        let lanes = if group.remote_size.is_some() { 1 } else { NONBLOCKING_LANES as u64 };
        Communicator {
            context,
            group,
            wire,
            any_memory: false,
            direct: false,
            one_device: false,
            hierarchy: None,
            with_libraries: None,
            library: None,
            library_turns: VecDeque::new(),
            asking: Asking::default(),
            started: 0,
            finished: [0; NONBLOCKING_LANES],
            lanes,
            in_turn: [(0, 0); 2],
        }
    }

    /// Lets messages be of any memory. All ranks must say so, or none: it changes how messages travel.
    #[must_use]
    pub fn with_any_memory(mut self, any_memory: bool) -> Communicator {
        self.any_memory = any_memory;
        self
    }

    /// Gives device memory to the wire as it is. All ranks must say so, or none, and each only where
    /// [`Process::device_memory_by_ucx`](crate::Process::device_memory_by_ucx) says that it works.
    #[must_use]
    pub fn with_direct(mut self, direct: bool) -> Communicator {
        self.direct = direct && matches!(self.wire, Wire::Ucx(_));
        self
    }

    /// Whether all ranks use one device, and rank 0 may do the work of all.
    pub fn is_one_device(&self) -> bool {
        self.one_device
    }

    /// Lets rank 0 do the work of all: every rank has the same one device. All ranks must say so, or none.
    #[must_use]
    pub fn with_one_device(mut self, one_device: bool) -> Communicator {
        self.one_device = one_device && self.group.size > 1 && self.group.remote_size.is_none();
        self
    }

    /// Lets collectives go by vendor groups, for ranks with these identities in the order of ranks, where the setting has
    /// it so. All ranks must give the same.
    #[must_use]
    pub fn with_identities(
        mut self,
        identities: impl IntoIterator<Item = Identity>,
        settings: &Settings,
    ) -> Communicator {
        if !settings.may_group() || self.group.size < 2 || self.group.remote_size.is_some() {
            return self;
        }
        let identities: Vec<Identity> = identities.into_iter().collect();
        let mixed = identities.iter().any(|identity| identity.vendor != identities[0].vendor);
        if identities.len() == self.group.len() && (mixed || settings.demands_groups()) {
            self.hierarchy = Some(Arc::new(Hierarchy::new(Topology::assumed(&identities))));
        }
        self
    }

    /// The machine under the ranks, where collectives may go by its groups.
    pub fn hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchy.as_deref()
    }

    /// Lets the libraries of these vendors do what is done inside their groups, where
    /// [`with_identities`](Communicator::with_identities) has found vendor groups; `own` is this rank's part, if it is in such a
    /// group. All ranks must name the same vendors, and messages may be of any memory.
    #[must_use]
    pub fn with_libraries(
        mut self,
        vendors: &[topology::Vendor],
        own: Option<GroupLibrary>,
    ) -> Communicator {
        if let Some(hierarchy) = self.hierarchy.as_deref().filter(|_| !vendors.is_empty()) {
            self.with_libraries = Some(Arc::new(hierarchy.clone().with_libraries(vendors)));
            self.library = own.map(Box::new);
        }
        self
    }

    /// Ends this rank's part in its vendor's library at once, whatever the other ranks do: the communicator has failed.
    pub fn end_library(&mut self) {
        if let Some(library) = self.library.take() {
            library.give_up();
        }
    }

    /// The machine for a request: with the vendors' libraries where they have its operation.
    pub(crate) fn machine(&self, request: &Request<'_>) -> Option<&Arc<Hierarchy>> {
        let known = match request.reduction {
            Some(reduction) => CclComm::can_reduce(reduction),
            None => !request.call.collective.reduces(),
        };
        self.with_libraries.as_ref().filter(|_| known).or(self.hierarchy.as_ref())
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

    /// The next collective's turn.
    pub(crate) fn take_turn(&mut self, mode: Mode) -> Turn {
        let counter = match mode.in_turn() {
            Some(index) => &mut self.in_turn[index].0,
            None => &mut self.started,
        };
        let number = *counter;
        *counter += 1;
        let tag = match mode.in_turn() {
            Some(index) => Mode::IN_TURN[index].1,
            None => (number % self.lanes) as u16,
        };
        Turn { mode, number, tag }
    }

    /// Notes that a collective that has been given its turn has steps of the vendor's library.
    pub(crate) fn note_library(&mut self, turn: Turn) {
        self.library_turns.push_back(turn);
    }

    /// Whether a collective may send: the one that had its tags before has finished, and those before that go to the vendor's
    /// library as this one does.
    #[inline]
    pub(crate) fn may_run(&self, turn: Turn) -> bool {
        let waits_for_library =
            self.library_turns.front() != Some(&turn) && self.library_turns.contains(&turn);
        if waits_for_library {
            return false;
        }
        match turn.mode.in_turn() {
            Some(index) => self.in_turn[index].1 == turn.number,
            None => self.finished[turn.tag as usize] == turn.number / self.lanes,
        }
    }

    /// Notes that a collective has finished, well or not.
    #[inline]
    pub(crate) fn note_finished(&mut self, turn: Turn) {
        self.library_turns.retain(|other| *other != turn);
        match turn.mode.in_turn() {
            Some(index) => self.in_turn[index].1 += 1,
            None => self.finished[turn.tag as usize] += 1,
        }
    }
}

/// A collective's place among those of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) mode: Mode,
    /// How many of the same mode came before.
    pub(crate) number: u64,
    /// What its messages carry.
    pub(crate) tag: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_core::Rank;

    fn communicator(remote_size: Option<u32>) -> Communicator {
        Communicator::new(0, Group { rank: Rank(0), size: 1, remote_size }, Wire::Alone)
    }

    #[test]
    fn collectives_that_go_to_the_vendors_library_follow_each_other() {
        let mut comm = communicator(None);
        let turns: Vec<Turn> = (0..3).map(|_| comm.take_turn(Mode::Nonblocking)).collect();
        comm.note_library(turns[0]);
        comm.note_library(turns[2]);
        assert_eq!(
            turns.iter().map(|&turn| comm.may_run(turn)).collect::<Vec<_>>(),
            [true, true, false]
        );
        comm.note_finished(turns[0]);
        assert!(comm.may_run(turns[2]));
    }

    #[test]
    fn a_number_comes_again_only_after_its_predecessor() {
        let mut comm = communicator(None);
        let turns: Vec<Turn> = (0..130).map(|_| comm.take_turn(Mode::Nonblocking)).collect();
        assert!(comm.may_run(turns[55]));
        assert!(!comm.may_run(turns[56]));
        comm.note_finished(turns[0]);
        assert!(comm.may_run(turns[56]));
        assert!(!comm.may_run(turns[112]));
        comm.note_finished(turns[56]);
        assert!(comm.may_run(turns[112]));
        assert_eq!(turns[57].tag, 1);
    }

    #[test]
    fn a_communicator_is_small() {
        assert!(size_of::<Communicator>() < 1024, "{}", size_of::<Communicator>());
    }

    #[test]
    fn blocking_collectives_have_numbers_of_their_own() {
        let mut comm = communicator(None);
        let waiting = comm.take_turn(Mode::Nonblocking);
        let (first, second) = (comm.take_turn(Mode::Blocking), comm.take_turn(Mode::Blocking));
        assert!(comm.may_run(waiting) && comm.may_run(first) && !comm.may_run(second));
        assert!(first.tag != waiting.tag && first.tag == second.tag);
        comm.note_finished(first);
        assert!(comm.may_run(second));
    }

    #[test]
    fn inter_communicators_run_one_at_a_time_with_one_tag() {
        let mut comm = communicator(Some(2));
        let (first, second) =
            (comm.take_turn(Mode::Nonblocking), comm.take_turn(Mode::Nonblocking));
        assert!(comm.may_run(first) && !comm.may_run(second));
        comm.note_finished(first);
        assert!(comm.may_run(second));
        assert_eq!(first.tag, second.tag);
    }
}
