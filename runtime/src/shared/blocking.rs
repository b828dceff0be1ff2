//! The collectives as functions that return when they are over.

use std::sync::Arc;

use maybe_async::must_be_sync as both;

use super::lane::{self, LaneError};
use super::segment::Segment;
use super::wait::Waiter;
use crate::watch::Watch;

#[path = "collectives/exchange.rs"]
mod exchange;
#[path = "collectives/movement.rs"]
mod movement;
#[path = "collectives/reductions.rs"]
mod reductions;
#[path = "collectives/request.rs"]
mod request;

/// A rank's end of a segment, for one blocking collective at a time.
pub type Lane = lane::Lane<Waiter>;

impl Lane {
    /// The end of `rank`. `pids` are the processes of all ranks, where they can be asked for (empty: they can't).
    pub fn new(segment: &Arc<Segment>, rank: usize, pids: Vec<i32>, waiter: Waiter) -> Lane {
        Lane::at(Arc::clone(segment), segment.layout().blocking(), rank, pids, waiter)
    }

    /// Lets a watch look after the other ranks while this one waits.
    pub fn watch_by(&mut self, watch: Option<Arc<Watch>>) {
        self.watch = watch;
    }

    /// Waits for `ready`; `peer` is who keeps this rank waiting.
    #[inline]
    fn wait(&self, peer: usize, ready: impl Fn() -> bool) -> Result<(), LaneError> {
        self.way.until(ready, || self.gone(peer))
    }
}
