//! Graphs: streams record work instead of running it, and launches run it again and again.
//!
//! Each recording stream is a lane of the graph. A launch gives every lane to a stream of the graph's own, so lanes run
//! beside each other as far as their waits allow. What has been found to end a recording elsewhere ends it here: calls that
//! may wait or allocate, unless the thread has said that it means it ([`exchange_mode`]).

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use crate::Code;
use crate::file::next_number;
use crate::stream::{Role, Stream, Ticket};

type Once = Box<dyn FnOnce() + Send>;

/// Makes the work of a node, at each launch.
#[derive(Clone)]
pub(crate) struct Each(Arc<dyn Fn() -> Once + Send + Sync>);

impl Each {
    pub(crate) fn new(each: impl Fn() -> Once + Send + Sync + 'static) -> Each {
        Each(Arc::new(each))
    }
}

impl std::fmt::Debug for Each {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Each")
    }
}

#[derive(Clone, Debug)]
struct Node {
    lane: usize,
    /// Nodes that come before.
    after: Vec<usize>,
    each: Each,
}

/// Whom calls of which threads disturb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those of all threads.
    Global,
    /// Those of the thread that began.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    /// By the number of CUDA and HIP.
    pub fn from_number(number: i32) -> Result<Mode, Code> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets what the calling thread takes care of, and returns what it took care of before.
pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a program keeps with graphs: its function is called when the last of them has gone.
pub struct UserObject(Box<dyn Fn() + Send + Sync>);

impl UserObject {
    /// An object with this end.
    pub fn new(destroy: impl Fn() + Send + Sync + 'static) -> Arc<UserObject> {
        Arc::new(UserObject(Box::new(destroy)))
    }
}

impl std::fmt::Debug for UserObject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("UserObject")
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Recorded work.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Mutex<Vec<Node>>,
    lanes: AtomicUsize,
    kept: Mutex<Vec<Arc<UserObject>>>,
}

impl Graph {
    /// Adds work that waits for nothing and that nothing waits for, but the end of a launch.
    pub fn add_root(&self, work: impl Fn() + Send + Sync + 'static) {
        let work = Arc::new(work);
        let each = Each::new(move || {
            let work = work.clone();
            Box::new(move || work())
        });
        let lane = self.lanes.fetch_add(1, Ordering::Relaxed);
        self.add(Node { lane, after: Vec::new(), each });
    }

    /// Keeps an object for as long as the graph lives, or what was made of it.
    pub fn keep(&self, object: Arc<UserObject>) {
        lock(&self.kept).push(object);
    }

    fn add(&self, node: Node) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(node);
        nodes.len() - 1
    }

    /// Something that can be launched.
    pub fn instantiate(&self) -> Arc<Executable> {
        Arc::new(Executable {
            nodes: lock(&self.nodes).clone(),
            lanes: Mutex::new(Vec::new()),
            _kept: lock(&self.kept).clone(),
        })
    }

    fn come_before(&self, last: &[usize]) -> HashSet<usize> {
        let nodes = lock(&self.nodes);
        let mut found = HashSet::new();
        let mut open = last.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                open.extend(&nodes[node].after);
            }
        }
        found
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Executable {
    nodes: Vec<Node>,
    /// The stream of each lane, from the first launch on.
    lanes: Mutex<Vec<Arc<Stream>>>,
    _kept: Vec<Arc<UserObject>>,
}

impl Executable {
    /// Runs the graph in the stream's order; launches of the same graph follow each other.
    pub fn launch(self: &Arc<Executable>, stream: &Arc<Stream>) -> Result<(), Code> {
        if stream.is_recording() {
            return Err(Code::NOT_SUPPORTED);
        }
        let mut lanes = lock(&self.lanes);
        let domain = stream.domain()?;
        let count = self.nodes.iter().map(|node| node.lane + 1).max().unwrap_or(0);
        while lanes.len() < count {
            lanes.push(domain.stream(Role::NonBlocking, 0, 0));
        }
        let begin = stream.enqueue(|| {})?;
        let mut tickets: Vec<Ticket> = Vec::with_capacity(self.nodes.len());
        for Node { lane, after, each } in &self.nodes {
            let mut before: Vec<Ticket> = after.iter().map(|&node| tickets[node].clone()).collect();
            if before.is_empty() {
                before.push(begin.clone());
            }
            tickets.push(lanes[*lane].enqueue_after(before, (each.0)())?);
        }
        let graph = self.clone();
        stream.enqueue(move || {
            tickets.iter().for_each(Ticket::wait);
            drop(graph);
        })?;
        Ok(())
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        for lane in lock(&self.lanes).drain(..) {
            lane.close();
        }
    }
}

/// A recording under way.
#[derive(Debug)]
struct Capture {
    id: u64,
    graph: Arc<Graph>,
    mode: Mode,
    thread: ThreadId,
    /// The number of the stream that it began on.
    origin: u64,
    is_valid: AtomicBool,
    is_over: AtomicBool,
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// Recordings of the process that are not over.
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

/// Where a stream has come to in a graph that it records.
#[derive(Clone, Debug)]
pub struct Recording {
    capture: Arc<Capture>,
    lane: usize,
    /// The nodes that the next one comes after.
    last: Vec<usize>,
}

impl Recording {
    /// The recording's number, never given twice.
    pub fn id(&self) -> u64 {
        self.capture.id
    }

    /// What is recorded.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.capture.graph
    }

    /// Has no error ended it?
    pub fn is_valid(&self) -> bool {
        self.capture.is_valid.load(Ordering::Acquire)
    }

    /// Ends it with an error, which is returned.
    pub(crate) fn spoil(&self, code: Code) -> Code {
        self.capture.is_valid.store(false, Ordering::Release);
        code
    }

    pub(crate) fn add(&mut self, each: Each) -> Result<(), Code> {
        if !self.is_valid() {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let after = std::mem::take(&mut self.last);
        let node = self.capture.graph.add(Node { lane: self.lane, after, each });
        self.last.push(node);
        Ok(())
    }

    /// Has later work of a stream come after this place.
    pub(crate) fn hold_back(&self, stream: &Arc<Stream>) -> Result<(), Code> {
        if self.capture.is_over.load(Ordering::Acquire) {
            return Err(Code::CAPTURED_EVENT);
        }
        let mut recording = stream.recording();
        match &mut *recording {
            Some(own) if Arc::ptr_eq(&own.capture, &self.capture) => {
                own.last.extend(&self.last);
                own.last.sort_unstable();
                own.last.dedup();
            }
            Some(_) => return Err(self.spoil(Code::STREAM_CAPTURE_MERGE)),
            None => {
                let lane = self.capture.graph.lanes.fetch_add(1, Ordering::Relaxed);
                *recording = Some(Recording { lane, ..self.clone() });
                lock(&self.capture.streams).push(Arc::downgrade(stream));
            }
        }
        Ok(())
    }
}

/// Has a stream record from here on. Returns what will become the graph.
pub fn begin(stream: &Arc<Stream>, mode: Mode) -> Result<Arc<Graph>, Code> {
    let mut recording = stream.recording();
    if recording.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let graph = Arc::new(Graph { lanes: AtomicUsize::new(1), ..Graph::default() });
    let capture = Arc::new(Capture {
        id: next_number(),
        graph: graph.clone(),
        mode,
        thread: std::thread::current().id(),
        origin: stream.number,
        is_valid: AtomicBool::new(true),
        is_over: AtomicBool::new(false),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    lock(&CAPTURES).push(capture.clone());
    *recording = Some(Recording { capture, lane: 0, last: Vec::new() });
    Ok(graph)
}

/// Ends the recording that began on a stream.
pub fn end(stream: &Arc<Stream>) -> Result<Arc<Graph>, Code> {
    let Some(Recording { capture, last, .. }) = stream.recording().clone() else {
        return Err(Code::ILLEGAL_STATE);
    };
    if capture.origin != stream.number {
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    capture.is_over.store(true, Ordering::Release);
    lock(&CAPTURES).retain(|other| !Arc::ptr_eq(other, &capture));
    let waited_for = capture.graph.come_before(&last);
    let mut joined = true;
    for member in lock(&capture.streams).drain(..).filter_map(|stream| stream.upgrade()) {
        if let Some(own) = member.recording().take() {
            joined &= own.last.iter().all(|node| waited_for.contains(node));
        }
    }
    match capture.is_valid.load(Ordering::Acquire) {
        false => Err(Code::STREAM_CAPTURE_INVALIDATED),
        true if !joined => Err(Code::STREAM_CAPTURE_UNJOINED),
        true => Ok(capture.graph.clone()),
    }
}

/// What a stream records, if it does.
pub fn of(stream: &Stream) -> Option<Recording> {
    stream.recording().clone()
}

/// Refuses a call that a recording under way forbids to the calling thread: it ends the recording.
pub fn check_call() -> Result<(), Code> {
    let mode = MODE.get();
    if mode == Mode::Relaxed {
        return Ok(());
    }
    let here = std::thread::current().id();
    let disturbed = |capture: &Capture| {
        let own = capture.thread == here && capture.mode != Mode::Relaxed;
        own || mode == Mode::Global && capture.mode == Mode::Global
    };
    let captures = lock(&CAPTURES);
    match captures.iter().find(|capture| disturbed(capture)) {
        Some(capture) => {
            capture.is_valid.store(false, Ordering::Release);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

/// Refuses to wait for a stream that records: that ends the recording.
pub fn check_wait(stream: &Stream) -> Result<(), Code> {
    match &*stream.recording() {
        Some(recording) => Err(recording.spoil(Code::STREAM_CAPTURE_UNSUPPORTED)),
        None => Ok(()),
    }
}
