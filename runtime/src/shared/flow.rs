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
use crate::watch::CallWord;

/// What a flow and the server of a lane tell each other.
#[derive(Default)]
struct Mail {
    waiting: RefCell<VecDeque<Request<'static>>>,
    ended: RefCell<Vec<Result<(), LaneError>>>,
    closed: Cell<bool>,
}

/// One lane: its server, and what the front end knows its collectives by, from when they are started to when it hears of their
/// end.
struct Served<T> {
    server: Server,
    mail: Rc<Mail>,
    under_way: VecDeque<T>,
}

/// Runs one lane's collectives, and gives the lane back when the mail is closed. One for all: a future per collective would
/// cost more than a small collective itself.
type Server = Pin<Box<dyn Future<Output = Lane>>>;

/// The polled collectives of a communicator. `T` is what the front end knows them by.
pub struct Flow<T> {
    served: Vec<Served<T>>,
    started: usize,
    under_way: usize,
}

// SAFETY: mail is shared with the flow's own servers alone, which go where it goes and run only in its functions; the pointers
// of collectives under way are to buffers that any thread may use, as MPI has it.
unsafe impl<T: Send> Send for Flow<T> {}

impl<T: 'static> Flow<T> {
    /// A flow over these lanes, which are one rank's all. With `compare`, which is the same on all ranks, those that call
    /// different things get an error.
    pub fn new(lanes: Vec<Lane>, external: &'static dyn ExternalReducer, compare: bool) -> Flow<T> {
        let server = |lane| {
            let mail = Rc::new(Mail::default());
            let server: Server = Box::pin(serve(lane, Rc::clone(&mail), external, compare));
            Served { server, mail, under_way: VecDeque::new() }
        };
        Flow { served: lanes.into_iter().map(server).collect(), started: 0, under_way: 0 }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// The lanes, when nothing is under way.
    pub fn into_lanes(self) -> Option<Vec<Lane>> {
        let lane = |Served { mut server, mail, .. }: Served<T>| {
            mail.closed.set(true);
            match server.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lane) => Some(lane),
                Poll::Pending => None,
            }
        };
        self.is_idle().then(|| self.served.into_iter().map(lane).collect())?
    }

    /// The oldest collective under way on each lane.
    pub fn oldest(&self) -> impl Iterator<Item = &T> {
        self.served.iter().filter_map(|served| served.under_way.front())
    }

    /// Gives everything up that is under way; what it was. The lanes are lost: nothing more can come of them.
    pub fn give_up(self) -> Vec<T> {
        self.served.into_iter().flat_map(|served| served.under_way).collect()
    }

    /// Starts a collective; [`poll`](Flow::poll) says when it is over.
    ///
    /// # Safety
    /// What the request refers to stays as it is until then. Its regions are host memory, and what MPI demands of the buffers
    /// of collectives holds.
    pub unsafe fn start(&mut self, request: Request<'static>, token: T) {
        let lanes = self.served.len();
        let served = &mut self.served[self.started % lanes];
        served.mail.waiting.borrow_mut().push_back(request);
        served.under_way.push_back(token);
        self.started += 1;
        self.under_way += 1;
    }

    /// Goes on with all collectives as far as that is possible now; those that are over are added to `ended`.
    pub fn poll(&mut self, ended: &mut Vec<(T, Result<(), LaneError>)>) {
        if self.under_way == 0 {
            return;
        }
        let before = ended.len();
        for Served { server, mail, under_way } in &mut self.served {
            // A server ends only in `into_lanes`.
            let _ = server.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            for outcome in mail.ended.borrow_mut().drain(..) {
                // A lane's collectives end in the order in which they were started.
                ended.extend(under_way.pop_front().map(|token| (token, outcome)));
            }
        }
        self.under_way -= ended.len() - before;
    }
}

async fn serve(
    mut lane: Lane,
    mail: Rc<Mail>,
    external: &'static dyn ExternalReducer,
    compare: bool,
) -> Lane {
    let next = || {
        poll_fn(|_| match mail.waiting.borrow_mut().pop_front() {
            Some(next) => Poll::Ready(Some(next)),
            None if mail.closed.get() => Poll::Ready(None),
            None => Poll::Pending,
        })
    };
    while let Some(request) = next().await {
        let call =
            if compare { CallWord::of(request.call, request.reduction) } else { CallWord(0) };
        lane.next_is(call);
        // SAFETY: `Flow::start`'s caller has promised it.
        let outcome = unsafe { lane.run(&request, external).await };
        mail.ended.borrow_mut().push(outcome);
    }
    lane
}
