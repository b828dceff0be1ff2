//! Polled collectives of a communicator, one after the other on each of its polled lanes.
//!
//! All ranks start them in the same order, so the n-th goes to the same lane everywhere, and a collective that waits for one
//! before it waits for nothing that is not under way on all ranks.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::lane::LaneError;
use super::polled::Lane;
use crate::host::ExternalReducer;
use crate::process::Request;

type Running = Pin<Box<dyn Future<Output = (Lane, Result<(), LaneError>)>>>;

/// A collective and what its front end knows it by.
struct Waiting<T> {
    request: Request<'static>,
    token: T,
}

/// One lane's collectives.
struct Queue<T> {
    /// Here while none is under way.
    lane: Option<Lane>,
    running: Option<(Running, T)>,
    waiting: VecDeque<Waiting<T>>,
}

/// The polled collectives of a communicator. `T` is what the front end knows them by.
pub struct Flow<T> {
    queues: Vec<Queue<T>>,
    started: usize,
    under_way: usize,
    external: &'static dyn ExternalReducer,
}

// SAFETY: the pointers of collectives under way are to buffers that any thread may use, as MPI has it; so are lanes.
unsafe impl<T: Send> Send for Flow<T> {}

impl<T> Flow<T> {
    /// A flow over these lanes, which are one rank's all.
    pub fn new(lanes: Vec<Lane>, external: &'static dyn ExternalReducer) -> Flow<T> {
        let queue = |lane| Queue { lane: Some(lane), running: None, waiting: VecDeque::new() };
        Flow { queues: lanes.into_iter().map(queue).collect(), started: 0, under_way: 0, external }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// The lanes, when nothing is under way.
    pub fn into_lanes(self) -> Option<Vec<Lane>> {
        self.queues.into_iter().map(|queue| queue.lane).collect()
    }

    /// Starts a collective; [`poll`](Flow::poll) says when it is over.
    ///
    /// # Safety
    /// What the request refers to stays as it is until then. Its regions are host memory, and what MPI demands of the buffers
    /// of collectives holds.
    pub unsafe fn start(&mut self, request: Request<'static>, token: T) {
        let index = self.started % self.queues.len();
        self.queues[index].waiting.push_back(Waiting { request, token });
        self.started += 1;
        self.under_way += 1;
    }

    /// Goes on with all collectives as far as that is possible now; those that are over are added to `ended`.
    pub fn poll(&mut self, ended: &mut Vec<(T, Result<(), LaneError>)>) {
        if self.under_way == 0 {
            return;
        }
        let before = ended.len();
        for queue in &mut self.queues {
            queue.poll(self.external, ended);
        }
        self.under_way -= ended.len() - before;
    }
}

impl<T> Queue<T> {
    fn poll(
        &mut self,
        external: &'static dyn ExternalReducer,
        ended: &mut Vec<(T, Result<(), LaneError>)>,
    ) {
        loop {
            let Some((running, _)) = &mut self.running else {
                let Some(lane) = self.lane.take() else { return };
                match self.waiting.pop_front() {
                    Some(Waiting { request, token }) => {
                        self.running = Some((run(lane, request, external), token));
                        continue;
                    }
                    None => {
                        self.lane = Some(lane);
                        return;
                    }
                }
            };
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready((lane, outcome)) = running.as_mut().poll(&mut context) else { return };
            self.lane = Some(lane);
            if let Some((_, token)) = self.running.take() {
                ended.push((token, outcome));
            }
        }
    }
}

fn run(
    mut lane: Lane,
    request: Request<'static>,
    external: &'static dyn ExternalReducer,
) -> Running {
    Box::pin(async move {
        // SAFETY: `Flow::start`'s caller has promised it.
        let outcome = unsafe { lane.run(&request, external).await };
        (lane, outcome)
    })
}
