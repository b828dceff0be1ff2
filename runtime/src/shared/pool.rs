//! Segments of communicators that are gone, for later ones of the same ranks.

use std::collections::HashMap;
use std::sync::Arc;

use super::lane::Lane;

/// The processes of a communicator, in rank order, by the front end's names.
pub type Members = Arc<[u64]>;

/// Lanes that no communicator has.
#[derive(Debug, Default)]
pub struct Pool {
    lanes: HashMap<Members, Vec<Lane>>,
    bytes: usize,
    most_bytes: usize,
}

impl Pool {
    /// A pool that keeps `most_bytes` of shared memory at most.
    pub fn new(most_bytes: usize) -> Pool {
        Pool { most_bytes, ..Pool::default() }
    }

    /// The number, and the count of finished collectives, of a lane between these processes.
    pub fn offer(&self, members: &Members) -> Option<(u64, u64)> {
        self.lanes.get(members)?.last().map(|lane| (lane.id(), lane.finished()))
    }

    /// Whether the lane that somebody offers is here.
    pub fn has(&self, members: &Members, offer: (u64, u64)) -> bool {
        self.lanes
            .get(members)
            .is_some_and(|lanes| lanes.iter().any(|lane| (lane.id(), lane.finished()) == offer))
    }

    /// Takes out a lane that is here.
    pub fn take(&mut self, members: &Members, id: u64) -> Option<Lane> {
        let lanes = self.lanes.get_mut(members)?;
        let index = lanes.iter().position(|lane| lane.id() == id)?;
        let lane = lanes.swap_remove(index);
        if lanes.is_empty() {
            self.lanes.remove(members);
        }
        self.bytes -= lane.segment_bytes();
        Some(lane)
    }

    /// Takes back a lane; one that there is no room for goes.
    pub fn put(&mut self, members: Members, lane: Lane) {
        if self.bytes + lane.segment_bytes() <= self.most_bytes {
            self.bytes += lane.segment_bytes();
            self.lanes.entry(members).or_default().push(lane);
        }
    }
}
