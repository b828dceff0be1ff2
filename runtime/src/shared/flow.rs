//! Polled collectives of a communicator, one after the other on each of its polled lanes.
//!
//! All ranks start them in the same order, so the n-th goes to the same lane everywhere, and a collective that waits for one
//! before it waits for nothing that is not under way on all ranks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::lane::LaneError;
use super::polled::Lane;
use crate::host::ExternalReducer;
use crate::process::Request;

/// A collective and what its front end knows it by.
struct Waiting<T> {
    request: Request<'static>,
    token: T,
}

/// What a flow and the server of a lane tell each other.
struct Mail<T> {
    waiting: RefCell<VecDeque<Waiting<T>>>,
    ended: RefCell<Vec<(T, Result<(), LaneError>)>>,
    closed: Cell<bool>,
}

/// Runs one lane's collectives, and gives the lane back when the mail is closed. One for all: a future per collective would
/// cost more than a small collective itself.
type Server = Pin<Box<dyn Future<Output = Lane>>>;

/// The polled collectives of a communicator. `T` is what the front end knows them by.
pub struct Flow<T> {
    servers: Vec<(Server, Rc<Mail<T>>)>,
    started: usize,
    under_way: usize,
}

// SAFETY: mail is shared with the flow's own servers alone, which go where it goes and run only in its functions; the pointers
// of collectives under way are to buffers that any thread may use, as MPI has it.
unsafe impl<T: Send> Send for Flow<T> {}

impl<T: 'static> Flow<T> {
    /// A flow over these lanes, which are one rank's all.
    pub fn new(lanes: Vec<Lane>, external: &'static dyn ExternalReducer) -> Flow<T> {
        let server = |lane| {
            let mail = Rc::new(Mail {
                waiting: RefCell::default(),
                ended: RefCell::default(),
                closed: Cell::new(false),
            });
            let server: Server = Box::pin(serve(lane, Rc::clone(&mail), external));
            (server, mail)
        };
        Flow { servers: lanes.into_iter().map(server).collect(), started: 0, under_way: 0 }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// The lanes, when nothing is under way.
    pub fn into_lanes(self) -> Option<Vec<Lane>> {
        let lane = |(mut server, mail): (Server, Rc<Mail<T>>)| {
            mail.closed.set(true);
            match server.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lane) => Some(lane),
                Poll::Pending => None,
            }
        };
        self.is_idle().then(|| self.servers.into_iter().map(lane).collect())?
    }

    /// Starts a collective; [`poll`](Flow::poll) says when it is over.
    ///
    /// # Safety
    /// What the request refers to stays as it is until then. Its regions are host memory, and what MPI demands of the buffers
    /// of collectives holds.
    pub unsafe fn start(&mut self, request: Request<'static>, token: T) {
        let (_, mail) = &self.servers[self.started % self.servers.len()];
        mail.waiting.borrow_mut().push_back(Waiting { request, token });
        self.started += 1;
        self.under_way += 1;
    }

    /// Goes on with all collectives as far as that is possible now; those that are over are added to `ended`.
    pub fn poll(&mut self, ended: &mut Vec<(T, Result<(), LaneError>)>) {
        if self.under_way == 0 {
            return;
        }
        let before = ended.len();
        for (server, mail) in &mut self.servers {
            // A server ends only in `into_lanes`.
            let _ = server.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            ended.append(&mut mail.ended.borrow_mut());
        }
        self.under_way -= ended.len() - before;
    }
}

async fn serve<T>(
    mut lane: Lane,
    mail: Rc<Mail<T>>,
    external: &'static dyn ExternalReducer,
) -> Lane {
    let next = || {
        poll_fn(|_| match mail.waiting.borrow_mut().pop_front() {
            Some(next) => Poll::Ready(Some(next)),
            None if mail.closed.get() => Poll::Ready(None),
            None => Poll::Pending,
        })
    };
    while let Some(Waiting { request, token }) = next().await {
        // SAFETY: `Flow::start`'s caller has promised it.
        let outcome = unsafe { lane.run(&request, external).await };
        mail.ended.borrow_mut().push((token, outcome));
    }
    lane
}
