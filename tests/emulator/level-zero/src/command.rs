//! Command queues, command lists and fences.
//!
//! A queue is a stream. A list keeps operations for queues; an immediate list has a stream of its own and keeps nothing.

use std::sync::{Arc, Mutex, MutexGuard};

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::signal::{Pool, Signal};
use hetccl_emulated_device::stream::{Role, Stream};
use hetccl_emulated_device::{Code, copy, entries};

use crate::device::{check_context, checked, domain};
use crate::event::{get, get_all, limit};
use crate::module::{self, GroupCount};

const SYNCHRONOUS: u32 = 1;
const FOREVER_NS: u64 = u64::MAX;
/// `ze_result_t` for a list that is closed, or not.
const INVALID_COMMAND_LIST_TYPE: Code = Code(0x7800_0019);

static QUEUES: Table<Queue> = Table::new(4);
static LISTS: Table<List> = Table::new(5);
static FENCES: Table<Fence> = Table::new(6);

type Operation = Arc<dyn Fn() + Send + Sync>;

#[derive(Debug)]
struct Queue {
    stream: Arc<Stream>,
    synchronous: bool,
}

struct List {
    immediate: Option<Queue>,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    operations: Vec<Operation>,
    closed: bool,
}

#[derive(Debug)]
struct Fence {
    signal: Signal,
}

/// `ze_command_queue_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueDescription {
    structure: u32,
    next: usize,
    ordinal: u32,
    index: u32,
    flags: u32,
    mode: u32,
    priority: u32,
}

/// `ze_fence_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FenceDescription {
    structure: u32,
    next: usize,
    flags: u32,
}

impl Queue {
    fn new(
        context: usize,
        device: usize,
        description: In<QueueDescription>,
    ) -> Result<Queue, Code> {
        check_context(context)?;
        let QueueDescription { ordinal, mode, .. } = description.get()?;
        if ordinal != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = domain(checked(device)?).stream(Role::NonBlocking, 0, 0);
        Ok(Queue { stream, synchronous: mode == SYNCHRONOUS })
    }

    fn synchronize(&self, timeout_ns: u64) -> Result<(), Code> {
        if timeout_ns == FOREVER_NS {
            self.stream.synchronize();
            return Ok(());
        }
        if self.stream.synchronize_for(limit(timeout_ns)) { Ok(()) } else { Err(Code::NOT_READY) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stream.close();
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Appends a command that waits for events before and signals one after.
    fn append(
        &self,
        before: Vec<Signal>,
        work: impl Fn() + Send + Sync + 'static,
        after: Option<Signal>,
    ) -> Result<(), Code> {
        let operation = move || {
            for signal in &before {
                signal.wait_for(limit(FOREVER_NS));
            }
            work();
            if let Some(signal) = &after {
                signal.set(true);
            }
        };
        let Some(queue) = &self.immediate else {
            let mut recorded = self.lock();
            if recorded.closed {
                return Err(INVALID_COMMAND_LIST_TYPE);
            }
            recorded.operations.push(Arc::new(operation));
            return Ok(());
        };
        let ticket = queue.stream.enqueue(operation)?;
        if queue.synchronous {
            ticket.wait();
        }
        Ok(())
    }
}

fn signal_of(event: usize) -> Result<Option<Signal>, Code> {
    if event == 0 { Ok(None) } else { get(event).map(Some) }
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<QueueDescription>() == 40);
    assert!(size_of::<FenceDescription>() == 24);
};

entries! {
    fn zeCommandQueueCreate(context: usize, device: usize, description: In<QueueDescription>, queue: Out<usize>) {
        queue.check()?;
        queue.set(QUEUES.insert(Arc::new(Queue::new(context, device, description)?)))
    }

    fn zeCommandQueueDestroy(queue: usize) {
        QUEUES.remove(queue).map(drop)
    }

    fn zeCommandQueueSynchronize(queue: usize, timeout_ns: u64) {
        QUEUES.get(queue)?.synchronize(timeout_ns)
    }

    fn zeCommandQueueExecuteCommandLists(queue: usize, count: u32, lists: In<usize>, fence: usize) {
        let queue = QUEUES.get(queue)?;
        let fence = if fence == 0 { None } else { Some(FENCES.get(fence)?) };
        for index in 0..count as usize {
            let list = LISTS.get(lists.at(index)?)?;
            let recorded = list.lock();
            if list.immediate.is_some() || !recorded.closed {
                return Err(INVALID_COMMAND_LIST_TYPE);
            }
            for operation in recorded.operations.iter().cloned() {
                queue.stream.enqueue(move || operation())?;
            }
        }
        if let Some(fence) = fence {
            queue.stream.enqueue(move || fence.signal.set(true))?;
        }
        if queue.synchronous { queue.synchronize(FOREVER_NS) } else { Ok(()) }
    }

    fn zeCommandListCreate(context: usize, device: usize, _description: In<u8>, list: Out<usize>) {
        check_context(context)?;
        checked(device)?;
        list.check()?;
        list.set(LISTS.insert(Arc::new(List { immediate: None, recorded: Mutex::default() })))
    }

    fn zeCommandListCreateImmediate(
        context: usize, device: usize, description: In<QueueDescription>, list: Out<usize>
    ) {
        list.check()?;
        let immediate = Some(Queue::new(context, device, description)?);
        list.set(LISTS.insert(Arc::new(List { immediate, recorded: Mutex::default() })))
    }

    fn zeCommandListDestroy(list: usize) {
        LISTS.remove(list).map(drop)
    }

    fn zeCommandListClose(list: usize) {
        LISTS.get(list)?.lock().closed = true;
        Ok(())
    }

    fn zeCommandListReset(list: usize) {
        *LISTS.get(list)?.lock() = Recorded::default();
        Ok(())
    }

    fn zeCommandListHostSynchronize(list: usize, timeout_ns: u64) {
        let list = LISTS.get(list)?;
        list.immediate.as_ref().ok_or(INVALID_COMMAND_LIST_TYPE)?.synchronize(timeout_ns)
    }

    fn zeCommandListAppendBarrier(list: usize, signal: usize, count: u32, events: In<usize>) {
        LISTS.get(list)?.append(get_all(count, events)?, || (), signal_of(signal)?)
    }

    fn zeCommandListAppendWaitOnEvents(list: usize, count: u32, events: In<usize>) {
        LISTS.get(list)?.append(get_all(count, events)?, || (), None)
    }

    fn zeCommandListAppendSignalEvent(list: usize, event: usize) {
        LISTS.get(list)?.append(Vec::new(), || (), Some(get(event)?))
    }

    fn zeCommandListAppendEventReset(list: usize, event: usize) {
        let event = get(event)?;
        LISTS.get(list)?.append(Vec::new(), move || event.set(false), None)
    }

    fn zeCommandListAppendMemoryCopy(
        list: usize, to: usize, from: usize, bytes: usize, signal: usize, count: u32, events: In<usize>
    ) {
        let copy = copy::operation(to, from, bytes)?;
        LISTS.get(list)?.append(get_all(count, events)?, copy, signal_of(signal)?)
    }

    fn zeCommandListAppendMemoryFill(
        list: usize, to: usize, pattern: In<u8>, pattern_bytes: usize, bytes: usize, signal: usize, count: u32,
        events: In<usize>
    ) {
        let pattern: Result<Vec<u8>, Code> = (0..pattern_bytes).map(|index| pattern.at(index)).collect();
        let fill = copy::fill_operation(to, &pattern?, bytes)?;
        LISTS.get(list)?.append(get_all(count, events)?, fill, signal_of(signal)?)
    }

    fn zeCommandListAppendLaunchKernel(
        list: usize, kernel: usize, groups: In<GroupCount>, signal: usize, count: u32, events: In<usize>
    ) {
        let launch = module::launch(kernel, groups.get()?)?;
        LISTS.get(list)?.append(get_all(count, events)?, launch, signal_of(signal)?)
    }

    fn zeFenceCreate(queue: usize, description: In<FenceDescription>, fence: Out<usize>) {
        const SIGNALED: u32 = 1;
        fence.check()?;
        QUEUES.get(queue)?;
        let signal = Pool::new(1)?.signal(0)?;
        signal.set(description.get()?.flags & SIGNALED != 0);
        fence.set(FENCES.insert(Arc::new(Fence { signal })))
    }

    fn zeFenceDestroy(fence: usize) {
        FENCES.remove(fence).map(drop)
    }

    fn zeFenceHostSynchronize(fence: usize, timeout_ns: u64) {
        if FENCES.get(fence)?.signal.wait_for(limit(timeout_ns)) { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn zeFenceQueryStatus(fence: usize) {
        if FENCES.get(fence)?.signal.is_set() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn zeFenceReset(fence: usize) {
        FENCES.get(fence)?.signal.set(false);
        Ok(())
    }
}
