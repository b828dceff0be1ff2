//! The same collectives as futures, for nonblocking and persistent calls: none ever waits, each goes on when it is polled.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use maybe_async::must_be_async as both;

use super::lane::{self, LaneError};
use super::segment::Segment;

#[path = "collectives/exchange.rs"]
mod exchange;
#[path = "collectives/movement.rs"]
mod movement;
#[path = "collectives/reductions.rs"]
mod reductions;
#[path = "collectives/request.rs"]
mod request;

/// Looks in vain before the process of the peer is asked for.
const LOOKS_PER_QUESTION: u32 = 1 << 16;

/// Waiting is left to whoever polls.
#[derive(Clone, Copy, Debug)]
pub struct Polled;

/// A rank's end of a segment, for one polled collective at a time.
pub type Lane = lane::Lane<Polled>;

impl Lane {
    /// The ends of `rank`; see [`blocking::Lane::new`](super::blocking::Lane::new).
    pub fn all(segment: &Arc<Segment>, rank: usize, pids: &[i32]) -> Vec<Lane> {
        let parts = segment.layout().polled();
        parts.map(|part| Lane::at(Arc::clone(segment), part, rank, pids.to_vec(), Polled)).collect()
    }

    /// Ready when `ready`; `peer` is who keeps this rank waiting.
    async fn wait(&self, peer: usize, ready: impl Fn() -> bool) -> Result<(), LaneError> {
        let mut looks = 0;
        poll_fn(|_| {
            if ready() {
                return Poll::Ready(Ok(()));
            }
            looks += 1;
            if looks % LOOKS_PER_QUESTION == 0
                && let Some(error) = self.gone(peer)
            {
                return Poll::Ready(if ready() { Ok(()) } else { Err(error) });
            }
            Poll::Pending
        })
        .await
    }
}
