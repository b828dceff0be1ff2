//! Small things that ranks tell each other outside of tasks, to make a communicator out of another.

use std::sync::mpsc;

use hetccl_core::{Handle, Posted, Rank, Region};
use hetccl_runtime::Direction;

use super::Engine;
use crate::Failure;

/// Give `own` to all `members`, get everybody's.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Ranks, this one among them; the same list on all of them.
    pub(crate) members: Vec<usize>,
    /// The same length on all members.
    pub(crate) own: Vec<u8>,
    pub(crate) reply: mpsc::Sender<Result<Vec<Vec<u8>>, Failure>>,
}

#[derive(Debug)]
pub(super) struct Exchanging {
    exchange: Exchange,
    received: Vec<Vec<u8>>,
    pending: Vec<Handle>,
    failure: Option<Failure>,
}

impl Engine {
    pub(super) fn begin_exchange(&mut self, exchange: Exchange) -> Exchanging {
        let received = vec![vec![0; exchange.own.len()]; exchange.members.len()];
        let mut state = Exchanging { exchange, received, pending: Vec::new(), failure: None };
        for index in 0..state.exchange.members.len() {
            let peer = state.exchange.members[index];
            if peer == self.rank {
                state.received[index].clone_from(&state.exchange.own);
                continue;
            }
            let regions = [
                (Direction::Receive, Region::of_bytes_mut(&mut state.received[index])),
                (Direction::Send, Region::of_bytes(&state.exchange.own)),
            ];
            for (direction, region) in regions {
                // SAFETY: both live in `state` until everything has finished or is cancelled; their bytes do not move.
                let posted = unsafe {
                    self.process.post_message(
                        &mut self.communicator,
                        &mut self.own_messages,
                        direction,
                        Rank::from(peer),
                        region,
                    )
                };
                match posted {
                    Ok(Posted::Done) => {}
                    Ok(Posted::Pending(handle)) => state.pending.push(handle),
                    Err(error) => state.failure = Some(error.into()),
                }
            }
        }
        state
    }

    /// Whether it is over; the asker has been answered then.
    pub(super) fn advance_exchange(&mut self, state: &mut Exchanging) -> bool {
        while state.failure.is_none()
            && let Some(&handle) = state.pending.last()
        {
            match self.process.test_message(&mut self.communicator, handle) {
                Ok(false) => return false,
                Ok(true) => {
                    state.pending.pop();
                }
                Err(error) => {
                    state.pending.pop();
                    state.failure = Some(error.into());
                }
            }
        }
        self.give_up_exchange(state);
        let answer = match state.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut state.received)),
        };
        // The asker may have gone.
        let _ = state.exchange.reply.send(answer);
        true
    }

    /// Takes the memory back.
    pub(super) fn give_up_exchange(&mut self, state: &mut Exchanging) {
        for handle in state.pending.drain(..) {
            self.process.cancel_message(&mut self.communicator, handle);
        }
    }
}
