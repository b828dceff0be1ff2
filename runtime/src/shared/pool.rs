//! Segments of communicators that are gone, for later ones of the same ranks.

use std::collections::HashMap;
use std::sync::Arc;

use super::{blocking, polled};

/// The processes of a communicator, in rank order, by the front end's names.
pub type Members = Arc<[u64]>;

/// A rank's ends of one segment.
#[derive(Debug)]
pub struct Lanes {
    /// For blocking collectives.
    pub blocking: blocking::Lane,
    /// For polled ones.
    pub polled: Vec<polled::Lane>,
}

impl Lanes {
    /// The segment's number.
    pub fn id(&self) -> u64 {
        self.blocking.segment.id()
    }

    /// Collectives finished so far; equal on all ranks when none is under way.
    pub fn finished(&self) -> u64 {
        self.blocking.finished() + self.polled.iter().map(polled::Lane::finished).sum::<u64>()
    }

    fn segment_bytes(&self) -> usize {
        self.blocking.segment.layout().segment_bytes()
    }
}

/// Segments that no communicator has.
#[derive(Debug, Default)]
pub struct Pool {
    lanes: HashMap<Members, Vec<Lanes>>,
    bytes: usize,
    most_bytes: usize,
}

impl Pool {
    /// A pool that keeps `most_bytes` of shared memory at most.
    pub fn new(most_bytes: usize) -> Pool {
        Pool { most_bytes, ..Pool::default() }
    }

    /// Takes out a lane between these processes, to be offered to the others.
    pub fn take_any(&mut self, members: &Members) -> Option<Lanes> {
        let last = self.lanes.get(members)?.len().checked_sub(1)?;
        self.take_at(members, last)
    }

    /// Takes out the lane that somebody offers, by its number and count of finished collectives, if it is here.
    pub fn take(&mut self, members: &Members, id: u64, finished: u64) -> Option<Lanes> {
        let lanes = self.lanes.get(members)?;
        let index = lanes.iter().position(|lane| (lane.id(), lane.finished()) == (id, finished))?;
        self.take_at(members, index)
    }

    fn take_at(&mut self, members: &Members, index: usize) -> Option<Lanes> {
        let lanes = self.lanes.get_mut(members)?;
        let lane = lanes.swap_remove(index);
        if lanes.is_empty() {
            self.lanes.remove(members);
        }
        self.bytes -= lane.segment_bytes();
        Some(lane)
    }

    /// Takes back a lane; one that there is no room for goes.
    pub fn put(&mut self, members: Members, lane: Lanes) {
        if self.bytes + lane.segment_bytes() <= self.most_bytes {
            self.bytes += lane.segment_bytes();
            self.lanes.entry(members).or_default().push(lane);
        }
    }
}
