//! The vendor library's collectives of simulated ranks: they follow each other, and each ends when all ranks of its group have come.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hetccl_core::topology::Hierarchy;
use hetccl_core::{GroupCall, GroupCollective, Region};

use crate::memory::{Arithmetic, Memory};

/// A collective by its group and its number there.
type Key = (usize, usize);

/// What ranks have brought so far.
#[derive(Default)]
pub(crate) struct Groups {
    brought: HashMap<Key, Vec<Option<Vec<u8>>>>,
    /// Processes that can go on.
    wake: Vec<usize>,
}

impl Groups {
    /// The processes whose collectives have ended since the last time.
    pub(crate) fn take_wake(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.wake)
    }
}

/// A rank's collectives, in their order.
pub(crate) struct Queue {
    /// The machine, this rank's group there, and its place in the group.
    seat: Option<(Arc<Hierarchy>, usize, usize)>,
    waiting: VecDeque<(GroupCall, Region, Region)>,
    /// The first one's input has been brought.
    brought: bool,
    ended: usize,
}

impl Queue {
    pub(crate) fn new(hierarchy: Option<&Arc<Hierarchy>>, process: usize) -> Queue {
        let seat = hierarchy.and_then(|hierarchy| {
            let group = hierarchy.library_group(process)?;
            let ranks = &hierarchy.library_groups()[group];
            let place = ranks.iter().position(|rank| rank.index() == process)?;
            Some((Arc::clone(hierarchy), group, place))
        });
        Queue { seat, waiting: VecDeque::new(), brought: false, ended: 0 }
    }

    /// Queues a collective; its number. `None` where this rank has no library group.
    pub(crate) fn push(&mut self, call: GroupCall, from: Region, into: Region) -> Option<usize> {
        self.seat.as_ref()?;
        self.waiting.push_back((call, from, into));
        Some(self.ended + self.waiting.len() - 1)
    }

    /// The other processes of the group.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> {
        let ranks =
            self.seat.iter().flat_map(|(hierarchy, group, _)| &hierarchy.library_groups()[*group]);
        ranks.map(|rank| rank.index())
    }

    /// Whether the collective with a number has ended; lets all do so that can.
    pub(crate) fn has_ended(
        &mut self,
        number: usize,
        groups: &mut Groups,
        memory: &mut Memory,
        arithmetic: Arithmetic,
    ) -> bool {
        while let (Some((hierarchy, group, place)), Some(&(call, from, into))) =
            (&self.seat, self.waiting.front())
        {
            let ranks = &hierarchy.library_groups()[*group];
            let brought = groups.brought.entry((*group, self.ended)).or_default();
            brought.resize(ranks.len(), None);
            if !std::mem::replace(&mut self.brought, true) {
                brought[*place] = Some(memory.read(from).to_vec());
                if brought.iter().all(Option::is_some) {
                    groups.wake.extend(ranks.iter().map(|rank| rank.index()));
                }
            }
            let Some(inputs) = brought.iter().map(Option::as_deref).collect::<Option<Vec<_>>>()
            else {
                break;
            };
            let result = result(call, &inputs, *place, into.len_bytes, arithmetic);
            memory.write(into, &result);
            self.waiting.pop_front();
            (self.brought, self.ended) = (false, self.ended + 1);
        }
        number < self.ended
    }
}

/// The bytes that the rank with a place in the group gets.
fn result(
    call: GroupCall,
    inputs: &[&[u8]],
    place: usize,
    len_bytes: usize,
    arithmetic: Arithmetic,
) -> Vec<u8> {
    let combined = |start: usize| {
        let mut sum = inputs[0][start..start + len_bytes].to_vec();
        for input in &inputs[1..] {
            sum = arithmetic.combine_bytes(&sum, &input[start..start + len_bytes]);
        }
        sum
    };
    match call.collective {
        GroupCollective::ReduceScatter => combined(place * len_bytes),
        GroupCollective::Allgather => inputs.concat(),
        GroupCollective::Reduce if place == call.root as usize => combined(0),
        GroupCollective::Reduce => Vec::new(),
        GroupCollective::Bcast => inputs[call.root as usize][..len_bytes].to_vec(),
    }
}
