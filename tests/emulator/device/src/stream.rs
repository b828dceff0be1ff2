//! Streams: each is a thread that runs its queue in order, a little late.
//!
//! A [`Domain`] is what a null stream synchronises: the streams of a context (CUDA) or of a device (HIP). Work on its null
//! stream waits for the earlier work of all its blocking streams, and later work of those waits for it. What an operation
//! waits for is fixed when it is enqueued, under a lock of the domain, so waiting cannot go round in circles.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::file::next_number;
use crate::graph::{Each, Recording};
use crate::{Code, settings};

const KERNEL_STACK_BYTES: usize = 16 << 20;

/// The streams that share a null stream.
#[derive(Debug)]
pub struct Domain {
    /// The device's number.
    pub device: usize,
    /// The context's handle; 0 without contexts.
    pub context: usize,
    /// Its null stream.
    pub null: Arc<Stream>,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Waits for values in its streams that have not ended.
    value_waits: AtomicUsize,
    /// Calls that keep others out.
    locked: Mutex<usize>,
    unlocked: Condvar,
}

/// Keeps calls of other threads waiting until it is dropped.
#[derive(Debug)]
pub struct LockedOut(Arc<Domain>);

impl Drop for LockedOut {
    fn drop(&mut self) {
        *self.0.lock_count() -= 1;
        self.0.unlocked.notify_all();
    }
}

/// A wait for a value that has not ended.
#[derive(Debug)]
pub(crate) struct ValueWait(Option<Arc<Domain>>);

impl ValueWait {
    pub(crate) fn new(stream: &Stream) -> ValueWait {
        let domain = stream.domain.upgrade();
        if let Some(domain) = &domain {
            domain.value_waits.fetch_add(1, Ordering::AcqRel);
        }
        ValueWait(domain)
    }
}

impl Drop for ValueWait {
    fn drop(&mut self) {
        if let Some(domain) = &self.0 {
            domain.value_waits.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Domain {
    /// A domain with a null stream.
    pub fn new(device: usize, context: usize) -> Arc<Domain> {
        Arc::new_cyclic(|domain| {
            let null = Stream::new(domain.clone(), Role::Null, 0, 0);
            Domain {
                device,
                context,
                streams: Mutex::new(vec![null.clone()]),
                null,
                value_waits: AtomicUsize::new(0),
                locked: Mutex::new(0),
                unlocked: Condvar::new(),
            }
        })
    }

    /// A new stream.
    pub fn stream(self: &Arc<Domain>, role: Role, flags: u32, priority: i32) -> Arc<Stream> {
        let stream = Stream::new(Arc::downgrade(self), role, flags, priority);
        self.lock().push(stream.clone());
        stream
    }

    /// Waits for all work that was enqueued.
    pub fn synchronize(&self) {
        let streams = self.lock().clone();
        for stream in streams {
            stream.synchronize();
        }
    }

    /// What a driver does when it loads code or frees memory: waits until no stream waits for a value, and keeps other
    /// threads' calls that queue work waiting meanwhile.
    pub fn lock_out(self: &Arc<Domain>) -> LockedOut {
        *self.lock_count() += 1;
        let locked = LockedOut(self.clone());
        while self.value_waits.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        locked
    }

    /// Waits while another call keeps those out that queue work.
    pub fn gate(&self) {
        let mut locked = self.lock_count();
        while *locked > 0 {
            locked = self.unlocked.wait(locked).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn lock_count(&self) -> MutexGuard<'_, usize> {
        self.locked.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ends all streams, once their work is done.
    pub fn close(&self) {
        let streams = self.lock().clone();
        for stream in streams {
            stream.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// How a stream and the null stream of its domain wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is the null stream.
    Null,
    /// They do.
    Blocking,
    /// They do not.
    NonBlocking,
}

/// A queue of work.
#[derive(Debug)]
pub struct Stream {
    /// Unique in the process.
    pub number: u64,
    /// Flags that it was made with.
    pub flags: u32,
    /// Kept for queries.
    pub priority: i32,
    domain: Weak<Domain>,
    role: Role,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The graph that it records instead of running.
    recording: Mutex<Option<Recording>>,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    enqueued: u64,
    finished: u64,
    has_thread: bool,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Queue({} of {} finished)", self.finished, self.enqueued)
    }
}

struct Operation {
    after: Vec<Ticket>,
    work: Box<dyn FnOnce() + Send>,
}

/// An operation of a stream, to wait for.
#[derive(Clone, Debug)]
pub struct Ticket {
    stream: Arc<Stream>,
    operation: u64,
}

impl Ticket {
    /// Waits until the operation has finished.
    pub fn wait(&self) {
        let mut queue = self.stream.lock();
        while queue.finished < self.operation {
            queue =
                self.stream.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl Stream {
    fn new(domain: Weak<Domain>, role: Role, flags: u32, priority: i32) -> Arc<Stream> {
        Arc::new(Stream {
            number: next_number(),
            flags,
            priority,
            domain,
            role,
            queue: Mutex::default(),
            changed: Condvar::new(),
            recording: Mutex::new(None),
        })
    }

    /// The domain that it belongs to.
    pub fn domain(&self) -> Result<Arc<Domain>, Code> {
        self.domain.upgrade().ok_or(Code::CONTEXT_IS_DESTROYED)
    }

    /// What it records, where it does.
    pub(crate) fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does it record a graph?
    pub fn is_recording(&self) -> bool {
        self.recording().is_some()
    }

    /// Puts `work`, which can be done again, at the end of the queue or into the graph that the stream records.
    pub fn submit(
        self: &Arc<Stream>,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<Ticket, Code> {
        let work = Arc::new(work);
        self.submit_each(move || {
            let work = work.clone();
            Box::new(move || work())
        })
    }

    /// As [`Stream::submit`]; `each` is called when the work is enqueued, for graphs at each launch, and returns the work.
    pub fn submit_each(
        self: &Arc<Stream>,
        each: impl Fn() -> Box<dyn FnOnce() + Send> + Send + Sync + 'static,
    ) -> Result<Ticket, Code> {
        if let Some(recording) = &mut *self.recording() {
            recording.add(Each::new(each))?;
            return Ok(Ticket { stream: self.clone(), operation: 0 });
        }
        self.enqueue(each())
    }

    /// Puts `work` at the end of the queue. It is nothing that a graph can have.
    pub fn enqueue(
        self: &Arc<Stream>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Ticket, Code> {
        self.enqueue_after(Vec::new(), work)
    }

    /// As [`Stream::enqueue`], to be done after operations of other streams.
    pub(crate) fn enqueue_after(
        self: &Arc<Stream>,
        mut after: Vec<Ticket>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Ticket, Code> {
        if let Some(recording) = &*self.recording() {
            return Err(recording.spoil(Code::STREAM_CAPTURE_UNSUPPORTED));
        }
        let domain = self.domain()?;
        let streams = domain.lock();
        match self.role {
            Role::Null => {
                let blocking = || streams.iter().filter(|other| other.role == Role::Blocking);
                if let Some(recording) = blocking().find_map(|other| other.recording().clone()) {
                    return Err(recording.spoil(Code::STREAM_CAPTURE_IMPLICIT));
                }
                after.extend(blocking().filter_map(Stream::last));
            }
            Role::Blocking => after.extend(domain.null.last()),
            Role::NonBlocking => {}
        }
        let mut queue = self.lock();
        if queue.closed {
            return Err(Code::INVALID_HANDLE);
        }
        queue.operations.push_back(Operation { after, work: Box::new(work) });
        queue.enqueued += 1;
        let operation = queue.enqueued;
        if !queue.has_thread {
            queue.has_thread = true;
            let stream = self.clone();
            let thread = std::thread::Builder::new()
                .name("emulated-stream".to_owned())
                .stack_size(KERNEL_STACK_BYTES);
            thread.spawn(move || stream.run()).map_err(|_| Code::OPERATING_SYSTEM)?;
        }
        self.changed.notify_all();
        Ok(Ticket { stream: self.clone(), operation })
    }

    /// Waits for all work that was enqueued; for the null stream, on the blocking streams as well.
    pub fn synchronize(self: &Arc<Stream>) {
        for last in self.pending() {
            last.wait();
        }
    }

    /// Has all work finished that [`Stream::synchronize`] would wait for?
    pub fn is_idle(self: &Arc<Stream>) -> bool {
        self.pending().is_empty()
    }

    /// Waits as [`Stream::synchronize`] does, but not longer than `limit`. Whether the work has finished.
    pub fn synchronize_for(self: &Arc<Stream>, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let idle = self.is_idle();
            if idle || start.elapsed() >= limit {
                return idle;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Ends the stream, once its work is done.
    pub fn close(self: &Arc<Stream>) {
        let mut queue = self.lock();
        queue.closed = true;
        self.changed.notify_all();
        let idle = !queue.has_thread;
        drop(queue);
        if idle {
            self.leave_domain();
        }
    }

    fn pending(self: &Arc<Stream>) -> Vec<Ticket> {
        let mut pending: Vec<Ticket> = self.last().into_iter().collect();
        if let (Role::Null, Some(domain)) = (self.role, self.domain.upgrade()) {
            pending.extend(
                domain
                    .lock()
                    .iter()
                    .filter(|other| other.role == Role::Blocking)
                    .filter_map(Stream::last),
            );
        }
        pending
    }

    /// The last operation, if it has not finished.
    fn last(self: &Arc<Stream>) -> Option<Ticket> {
        let queue = self.lock();
        (queue.finished < queue.enqueued)
            .then(|| Ticket { stream: self.clone(), operation: queue.enqueued })
    }

    fn run(self: Arc<Stream>) {
        leave_signals_to_the_program();
        while let Some(operation) = self.next() {
            for ticket in &operation.after {
                ticket.wait();
            }
            delay();
            (operation.work)();
            self.lock().finished += 1;
            self.changed.notify_all();
        }
        self.leave_domain();
    }

    fn next(&self) -> Option<Operation> {
        let mut queue = self.lock();
        loop {
            if let Some(operation) = queue.operations.pop_front() {
                return Some(operation);
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn leave_domain(&self) {
        if let Some(domain) = self.domain.upgrade() {
            domain.lock().retain(|other| other.number != self.number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Waits as long as the settings say, before an operation.
fn delay() {
    static OPERATIONS: AtomicU64 = AtomicU64::new(0);
    let (low, high) = (*settings::get().delay_us.start(), *settings::get().delay_us.end());
    if high == 0 {
        return;
    }
    let random = mix(settings::get().seed ^ mix(OPERATIONS.fetch_add(1, Ordering::Relaxed)));
    let wait_us = low + random % (high - low + 1);
    if wait_us > 0 {
        std::thread::sleep(Duration::from_micros(wait_us));
    }
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Blocks all signals in this thread but those that its own faults raise.
fn leave_signals_to_the_program() {
    // SAFETY: a signal set is plain data, filled before it is used.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
            libc::sigdelset(&mut signals, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
}
