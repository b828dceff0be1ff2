//! Communicators as programs see them: a handle that is looked up, never followed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hetccl_runtime::gpu::{Context, Driver, Relaxed, Stream};

use crate::abi::{Code, CommHandle};
use crate::delegate::Handle;
use crate::engine::{Command, Shared, Task};
use crate::graph::{self, Recorder};
use crate::meeting::Meeting;
use crate::operation::{Reduce, Work};
use crate::order::{SLOTS, Words};
use crate::weights::Weights;
use crate::{Failure, Library};

/// How long an abort waits for the engine to end.
const ABORT_PATIENCE: Duration = Duration::from_millis(900);

/// The device of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) number: u32,
    pub(crate) context: Context,
}

/// One rank of a communicator.
pub(crate) struct Comm {
    pub(crate) library: Library,
    pub(crate) device: Device,
    /// What it has once it is made, or why it could not be.
    pub(crate) made: OnceLock<Result<Live, Failure>>,
    pub(crate) nonblocking: bool,
    /// No more work is taken.
    pub(crate) finalized: AtomicBool,
    /// Its memory has been given back, and it takes no work until it is resumed.
    pub(crate) suspended: AtomicBool,
    /// What was under way has been given up on purpose, and no more work is taken.
    pub(crate) revoked: AtomicBool,
    /// The program does not want it any more, which may still be made.
    pub(crate) abandoned: AtomicBool,
}

/// A communicator that works.
pub(crate) struct Live {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) meeting: Meeting,
    /// How much each rank counts in averages, where that is set.
    pub(crate) weights: Option<Weights>,
    /// Device memory that the engine has, in bytes.
    pub(crate) device_bytes: Arc<AtomicUsize>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    queue: Mutex<Queue>,
    recorder: Mutex<Recorder>,
    /// Operations that the program made, from number 5 on.
    pub(crate) operations: Mutex<Vec<Option<(Reduce, i32)>>>,
}

struct Queue {
    driver: Box<dyn Driver>,
    /// Number of the last task.
    last: u32,
    slot: usize,
    /// Slots in use by tasks that may not have ended: task number and slots.
    used: std::collections::VecDeque<(u32, usize)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Live {
    pub(crate) fn new(
        rank: usize,
        size: usize,
        shared: Arc<Shared>,
        meeting: Meeting,
        driver: Box<dyn Driver>,
        thread: JoinHandle<()>,
    ) -> Live {
        let last = shared.words.first;
        Live {
            rank,
            size,
            shared,
            meeting,
            weights: None,
            device_bytes: Arc::default(),
            thread: Mutex::new(Some(thread)),
            queue: Mutex::new(Queue {
                driver,
                last,
                slot: 0,
                used: std::collections::VecDeque::new(),
            }),
            recorder: Mutex::default(),
            operations: Mutex::default(),
        }
    }

    /// Loads the kernels of works. A group does so for all its communicators before any stream is held back.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) fn load_kernels(&self, works: &[Work]) -> Result<(), Failure> {
        self.load(&lock(&self.queue), works)
    }

    fn load(&self, queue: &Queue, works: &[Work]) -> Result<(), Failure> {
        let _relaxed = Relaxed::new(&*queue.driver)?;
        for work in works {
            work.load_kernels(&*queue.driver, self.shared.context, &self.shared.kernels);
        }
        Ok(())
    }

    /// Queues a task: the streams are held back until it has ended. Streams that record a graph have it in there.
    ///
    /// # Errors
    /// Of the driver; streams of which some record.
    pub(crate) fn queue(
        &self,
        context: Context,
        streams: &[usize],
        works: Vec<Work>,
    ) -> Result<(), Failure> {
        let mut queue = lock(&self.queue);
        self.load(&queue, &works)?;
        if let Some(recording) = graph::recording(&*queue.driver, context, streams)? {
            let place = (&*queue.driver, context);
            return lock(&self.recorder).record(place, &self.shared, recording, streams, works);
        }
        let number = queue.last.wrapping_add(1);
        let words = &self.shared.words;
        let mut slots = Vec::with_capacity(streams.len());
        for &stream in streams {
            let slot = self.slot(&mut queue, number)?;
            let ready = (Words::address_of(words.ready(slot)), number);
            let done = (Words::address_of(words.done()), number);
            queue.driver.hold(context, Stream(stream), ready, done)?;
            slots.push(slot);
        }
        queue.last = number;
        self.shared.tell(Command::Task(Task { number, slots, works }));
        Ok(())
    }

    /// A word that no task uses; waits for one where there is none.
    fn slot(&self, queue: &mut Queue, number: u32) -> Result<usize, Failure> {
        loop {
            let ended = self.shared.ended.load(Ordering::Acquire);
            while queue.used.front().is_some_and(|&(task, _)| ended.wrapping_sub(task) as i32 >= 0)
            {
                queue.used.pop_front();
            }
            if queue.used.len() < SLOTS {
                break;
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if self.shared.abort.load(Ordering::Acquire) {
                return Err(Failure::usage("the communicator has been aborted"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let slot = queue.slot;
        queue.slot = (slot + 1) % SLOTS;
        queue.used.push_back((number, slot));
        Ok(slot)
    }

    /// What has ended the communicator: a failure of its own, or a rank that has gone.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.shared.failure().or_else(|| self.meeting.failure())
    }

    /// The same, but while work is under way only once the engine has said what became of that work.
    pub(crate) fn settled_failure(&self) -> Option<Failure> {
        let of_ranks = || if self.is_idle() { self.meeting.failure() } else { None };
        self.shared.failure().or_else(of_ranks)
    }

    /// Gives memory back that is only kept for later; returns when that is done.
    pub(crate) fn trim(&self) {
        let (done, waiting) = std::sync::mpsc::channel();
        self.shared.tell(Command::Trim(done));
        while waiting.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout)
            && !self.shared.abort.load(Ordering::Acquire)
        {}
    }

    /// Whether all tasks have ended.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.queue).last == self.shared.ended.load(Ordering::Acquire)
    }

    /// Waits until all tasks have ended, or one has failed.
    pub(crate) fn drain(&self) -> Result<(), Failure> {
        while !self.is_idle() {
            if let Some(failure) = self.shared.failure() {
                return Err(failure);
            }
            if self.shared.abort.load(Ordering::Acquire) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Ends the engine at once, and lets all streams go on. Does not wait for peers. Others hear of it where work was under
    /// way.
    pub(crate) fn abort(&self) {
        let in_order = self.is_idle() && self.failure().is_none();
        self.shared.give_up();
        if in_order {
            self.meeting.leave();
        } else {
            self.meeting.abort();
        }
        self.stop();
    }

    /// Ends the engine at once, and lets all streams go on; the ranks stay in touch.
    pub(crate) fn stop(&self) {
        self.shared.give_up();
        let deadline = Instant::now() + ABORT_PATIENCE;
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_micros(100));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        self.release();
    }

    /// Lets all streams go on.
    fn release(&self) {
        let last = lock(&self.queue).last;
        self.shared.words.done().store(last, Ordering::Release);
        self.shared.ended.store(last, Ordering::Release);
    }

    /// Ends the engine after its tasks.
    pub(crate) fn close(&self) {
        if self.shared.failure().is_some() {
            return self.abort();
        }
        self.shared.tell(Command::Close);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            while !thread.is_finished() {
                if self.shared.failure().is_some() {
                    self.shared.give_up();
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            let _ = thread.join();
        }
        self.meeting.leave();
        self.release();
    }
}

impl Comm {
    pub(crate) fn new(library: Library, device: Device, nonblocking: bool) -> Arc<Comm> {
        Arc::new(Comm {
            library,
            device,
            made: OnceLock::new(),
            nonblocking,
            finalized: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        })
    }

    /// The working communicator.
    ///
    /// # Errors
    /// It is still being made, could not be, or has failed.
    pub(crate) fn live(&self) -> Result<&Live, Failure> {
        match self.made.get() {
            Some(Ok(live)) => Ok(live),
            Some(Err(failure)) => Err(failure.clone()),
            None => Err(Failure::argument(
                "the communicator is still being made: poll ncclCommGetAsyncError until it says ncclSuccess",
            )),
        }
    }

    /// As [`live`](Comm::live), for work.
    ///
    /// # Errors
    /// The same, or it has been finalized or aborted.
    pub(crate) fn working(&self) -> Result<&Live, Failure> {
        let live = self.live()?;
        if self.revoked.load(Ordering::Acquire) {
            return Err(Failure::usage("the communicator has been revoked"));
        }
        if let Some(failure) = live.failure() {
            return Err(failure);
        }
        if self.suspended.load(Ordering::Acquire) {
            return Err(Failure::usage("the communicator is suspended: call ncclCommResume"));
        }
        if live.shared.abort.load(Ordering::Acquire) || self.finalized.load(Ordering::Acquire) {
            return Err(Failure::usage("the communicator has been finalized or aborted"));
        }
        Ok(live)
    }
}

impl Comm {
    /// As [`live`](Comm::live), to make another communicator out of it, for which no work is needed.
    ///
    /// # Errors
    /// The same, or it has been finalized.
    pub(crate) fn parent(&self) -> Result<&Live, Failure> {
        if self.revoked.load(Ordering::Acquire) { self.live() } else { self.working() }
    }
}

static COMMS: RwLock<Option<HashMap<usize, Arc<Comm>>>> = RwLock::new(None);

/// A handle for a communicator, and what it leads to. Its number is never given again, so a freed handle is known.
pub(crate) fn register(comm: Arc<Comm>) -> (CommHandle, &'static Handle) {
    let (number, handle) = Handle::create();
    let mut comms = COMMS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    comms.get_or_insert_default().insert(number.addr(), comm);
    (number, handle)
}

/// The communicator of a handle.
///
/// # Errors
/// Null, freed, or never given.
pub(crate) fn find(handle: CommHandle) -> Result<Arc<Comm>, Failure> {
    if handle.is_null() {
        return Err(Failure::argument("the communicator is null"));
    }
    let comms = COMMS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = comms.as_ref().and_then(|comms| comms.get(&handle.addr())).cloned();
    found.ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            "the communicator has been destroyed, or is none of this library's",
        )
    })
}

/// Forgets a handle.
pub(crate) fn forget(handle: CommHandle) {
    forget_number(handle.addr());
}

/// Forgets a handle by its number.
pub(crate) fn forget_number(number: usize) {
    let mut comms = COMMS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(comms) = comms.as_mut() {
        comms.remove(&number);
    }
}
