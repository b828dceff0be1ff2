//! Schedules that were built before, kept for the process so that a repeated call costs one look-up.

use std::sync::Arc;

use hetccl_core::algorithms::Algorithm;
use hetccl_core::{Call, Collective, Layout, Schedule, cost, payload_bytes, select};
use rustc_hash::FxHashMap;

use crate::settings::{GroupLibraryChoice, HierarchyChoice, Settings};

#[derive(PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    element_bytes: usize,
}

struct Entry {
    algorithm: &'static Algorithm,
    schedule: Arc<Schedule>,
    used: bool,
}

/// The last call of a collective, which the next one often repeats.
struct Recent {
    key: Key,
    algorithm: &'static Algorithm,
    schedule: Arc<Schedule>,
}

/// Schedules by call. When they take more memory than the bound, those not used since the last time are dropped.
pub(crate) struct Schedules {
    entries: FxHashMap<Key, Entry>,
    /// By collective.
    recent: [Option<Recent>; Collective::ALL.len()],
    footprint_bytes: usize,
    limit_bytes: usize,
}

/// A schedule larger than this part of the bound is built anew each time.
const LARGEST_PART: usize = 4;

impl Schedules {
    pub(crate) fn new(limit_bytes: usize) -> Schedules {
        Schedules {
            entries: FxHashMap::default(),
            recent: std::array::from_fn(|_| None),
            footprint_bytes: 0,
            limit_bytes,
        }
    }

    /// The algorithm and schedule for a call; `None` when no algorithm can do it.
    pub(crate) fn get(
        &mut self,
        call: &Call,
        element_bytes: usize,
        settings: &Settings,
    ) -> Option<(&'static Algorithm, Arc<Schedule>)> {
        if let Some(recent) = &self.recent[call.collective as usize]
            && recent.key.element_bytes == element_bytes
            && recent.key.call == *call
        {
            return Some((recent.algorithm, Arc::clone(&recent.schedule)));
        }
        let (algorithm, schedule) = self.look_up(call, element_bytes, settings)?;
        let footprint = schedule.footprint_bytes();
        if footprint <= self.limit_bytes / (LARGEST_PART * Collective::ALL.len()) {
            let key = Key { call: call.clone(), element_bytes };
            self.recent[call.collective as usize] =
                Some(Recent { key, algorithm, schedule: Arc::clone(&schedule) });
        }
        Some((algorithm, schedule))
    }

    fn look_up(
        &mut self,
        call: &Call,
        element_bytes: usize,
        settings: &Settings,
    ) -> Option<(&'static Algorithm, Arc<Schedule>)> {
        let key = Key { call: call.clone(), element_bytes };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = true;
            return Some((entry.algorithm, Arc::clone(&entry.schedule)));
        }
        let (algorithm, chunk) = pick(call, element_bytes, settings)?;
        let schedule = Arc::new(match chunk {
            Some(chunk) => (algorithm.build)(&Call { chunk, ..call.clone() }),
            None => (algorithm.build)(call),
        });
        let footprint = schedule.footprint_bytes() + size_of::<(Key, Entry)>();
        if footprint <= self.limit_bytes / LARGEST_PART {
            self.make_room(footprint);
            self.footprint_bytes += footprint;
            let entry = Entry { algorithm, schedule: Arc::clone(&schedule), used: true };
            self.entries.insert(key, entry);
        }
        Some((algorithm, schedule))
    }

    fn make_room(&mut self, footprint: usize) {
        if self.footprint_bytes + footprint <= self.limit_bytes {
            return;
        }
        self.entries.retain(|_, entry| std::mem::take(&mut entry.used));
        self.recount();
        if self.footprint_bytes + footprint > self.limit_bytes {
            self.entries.clear();
            self.footprint_bytes = 0;
        }
    }

    fn recount(&mut self) {
        self.footprint_bytes = self
            .entries
            .values()
            .map(|entry| entry.schedule.footprint_bytes() + size_of::<(Key, Entry)>())
            .sum();
    }
}

/// The algorithm of a call, and its chunk where that is not the call's own. Only what all ranks agree on is looked at.
fn pick(
    call: &Call,
    element_bytes: usize,
    settings: &Settings,
) -> Option<(&'static Algorithm, Option<usize>)> {
    let table =
        || select(call, element_bytes, &settings.choices).map(|algorithm| (algorithm, None));
    if call.topology.is_none() || settings.choices.is_forced(call.collective) {
        return table();
    }
    if settings.group_library == GroupLibraryChoice::On
        && let Some(choice) = cost::choose_library(call, element_bytes)
    {
        return Some((choice.algorithm, Some(choice.chunk.min(call.chunk))));
    }
    let choice = match settings.hierarchy {
        HierarchyChoice::Off => None,
        HierarchyChoice::On => cost::choose_grouped(call, element_bytes),
        // Ranks that see only their own blocks can't estimate the same time.
        HierarchyChoice::Auto
            if matches!(call.layout, Layout::Blocks { .. })
                && payload_bytes(call, element_bytes) == 0 =>
        {
            None
        }
        HierarchyChoice::Auto => cost::choose(call, element_bytes),
    };
    match choice {
        // The call's chunk is what suits the way of the messages; the model's, what lets phases overlap.
        Some(choice) => Some((choice.algorithm, Some(choice.chunk.min(call.chunk)))),
        None => table(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_core::Layout;

    fn call(count: usize) -> Call {
        Call::new(Collective::Allreduce, 0, 4, Layout::uniform(count))
    }

    #[test]
    fn a_repeated_call_gets_the_same_schedule() {
        let mut schedules = Schedules::new(1 << 20);
        let settings = Settings::default();
        let (_, first) = schedules.get(&call(3), 8, &settings).unwrap();
        let (_, again) = schedules.get(&call(3), 8, &settings).unwrap();
        let (_, other) = schedules.get(&call(4), 8, &settings).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn memory_stays_within_the_bound() {
        let mut schedules = Schedules::new(16 << 10);
        for count in 0..1000 {
            schedules.get(&call(count), 8, &Settings::default()).unwrap();
            assert!(schedules.footprint_bytes <= 16 << 10);
        }
    }
}
