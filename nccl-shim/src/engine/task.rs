//! A task under way.

use hetccl_core::{Handle, MemoryType, Posted, Rank, Region};
use hetccl_runtime::gpu::{Block, Change, Gpus, Lane, Order};
use hetccl_runtime::{Direction, Mode, Operation, Request};

use super::replay::CallInGraph;
use super::{Engine, Task};
use crate::Failure;
use crate::operation::{self, CollectiveWork, Place, Prepared, Scale, Signal, Work};

/// Rank 0 is asked for averages until it has declined so many in a row, which all ranks know.
const PATIENCE: u32 = 3;

/// What a task's end is told by.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The number of the last task that has ended.
    Task(u32),
    /// The word of a call in a graph.
    Graph(CallInGraph),
}

/// A task under way.
#[derive(Debug)]
pub(crate) struct Running {
    pub(super) end: End,
    works: Vec<Work>,
    parts: Vec<Part>,
    started: bool,
}

/// One of its works.
#[derive(Debug)]
pub(super) enum Part {
    Message(Handle),
    /// A put into another rank's window. The notice stays where it is until it has been sent.
    Put {
        handles: Vec<Handle>,
        _notice: Box<[u8; 64]>,
    },
    /// A put into this rank's own window, and the signal that ends it.
    OwnPut(Option<Handle>, Signal),
    /// So many signals are waited for.
    Signals(Signal, u64),
    /// A copy from this rank to itself, or beside a collective.
    Device(Handle),
    Collective(Box<Collective>),
}

#[derive(Debug)]
pub(super) struct Collective {
    prepared: Prepared,
    datatype: crate::abi::Element,
    block: Option<Block>,
    operation: Option<Operation>,
    /// The operation asks rank 0 for the average, and will be declined or be all there is to do.
    asks: bool,
    /// What the device does after it.
    last: Option<Handle>,
}

impl Running {
    pub(crate) fn new(task: Task) -> Running {
        Running::of(End::Task(task.number), task.works)
    }

    /// A call in a graph, once more.
    pub(super) fn again(place: CallInGraph, works: Vec<Work>) -> Running {
        Running::of(End::Graph(place), works)
    }

    fn of(end: End, works: Vec<Work>) -> Running {
        Running { end, works, parts: Vec::new(), started: false }
    }

    #[cfg(test)]
    pub(super) fn place(&self) -> Option<CallInGraph> {
        match self.end {
            End::Task(_) => None,
            End::Graph(place) => Some(place),
        }
    }

    /// What it does, in words.
    pub(super) fn describe(&self) -> String {
        let first = self.works.first().map_or_else(String::new, Work::describe);
        match self.works.len() {
            0 | 1 => first,
            more => format!("a group of {more}, first {first}"),
        }
    }
}

impl Engine {
    /// Does what can be done now; whether the task has finished.
    pub(super) fn advance(&mut self, task: &mut Running) -> Result<bool, Failure> {
        if !task.started {
            task.started = true;
            self.start(task)?;
        }
        let mut index = 0;
        while index < task.parts.len() {
            let finished = match &mut task.parts[index] {
                Part::Message(handle) => {
                    self.process.test_message(&mut self.communicator, *handle)?
                }
                Part::Put { handles, .. } => {
                    while let Some(&handle) = handles.last()
                        && self.process.test_message(&mut self.communicator, handle)?
                    {
                        handles.pop();
                    }
                    handles.is_empty()
                }
                Part::OwnPut(handle, signal) => self.advance_own_put(*handle, *signal)?,
                Part::Signals(signal, count) => self.take_signals(*signal, *count)?,
                Part::Device(handle) => self.process.gpus().test(*handle)?,
                Part::Collective(collective) => self.advance_collective(collective)?,
            };
            if finished {
                task.parts.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(task.parts.is_empty())
    }

    /// Cancels what is under way.
    pub(super) fn give_up(&mut self, task: Running) {
        for part in task.parts {
            match part {
                Part::Message(handle) => {
                    self.process.cancel_message(&mut self.communicator, handle)
                }
                Part::Put { handles, .. } => {
                    for handle in handles {
                        self.process.cancel_message(&mut self.communicator, handle);
                    }
                }
                Part::Device(_) | Part::OwnPut(..) | Part::Signals(..) => {}
                Part::Collective(mut collective) => {
                    if let Some(operation) = &mut collective.operation {
                        self.process.cancel(&mut self.communicator, operation);
                    }
                }
            }
        }
    }

    fn start(&mut self, task: &mut Running) -> Result<(), Failure> {
        // The program keeps its buffers while the task runs.
        self.process.gpus().begin_work();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for work in &task.works {
            match *work {
                Work::Message { direction, peer, address, len_bytes } if peer == self.rank => {
                    let region = operation::region(self.process.gpus(), address, len_bytes)?;
                    match direction {
                        Direction::Send => sends.push(region),
                        Direction::Receive => receives.push(region),
                    }
                }
                Work::Message { direction, peer, address, len_bytes } => {
                    let region = operation::region(self.process.gpus(), address, len_bytes)?;
                    // SAFETY: the program keeps its buffers until its stream goes on, as NCCL demands.
                    let posted = unsafe {
                        self.process.post_message(
                            &mut self.communicator,
                            &mut self.messages,
                            direction,
                            Rank::from(peer),
                            region,
                        )?
                    };
                    if let Posted::Pending(handle) = posted {
                        task.parts.push(Part::Message(handle));
                    }
                }
                Work::Put(ref work) => self.start_put(work, &mut task.parts)?,
                Work::Signals(signal, count) => {
                    self.listen();
                    task.parts.push(Part::Signals(signal, count));
                }
                Work::Collective(ref work) => {
                    let collective = self.begin_collective(work, &mut task.parts)?;
                    task.parts.push(Part::Collective(Box::new(collective)));
                }
            }
        }
        if sends.len() != receives.len() {
            return Err(Failure::usage(format!(
                "rank {} sends {} messages to itself and receives {} in one group; they must be equal",
                self.rank,
                sends.len(),
                receives.len()
            )));
        }
        for (from, into) in sends.into_iter().zip(receives) {
            if from.len_bytes != into.len_bytes {
                return Err(Failure::usage(format!(
                    "rank {} sends itself {} bytes and receives {}",
                    self.rank, from.len_bytes, into.len_bytes
                )));
            }
            task.parts.extend(self.copy(from, into)?);
        }
        Ok(())
    }

    /// A copy on this rank.
    pub(super) fn copy(&mut self, from: Region, into: Region) -> Result<Option<Part>, Failure> {
        if from.len_bytes == 0 || from.address == into.address {
            return Ok(None);
        }
        let gpus = self.process.gpus();
        let near = if from.memory == MemoryType::Host { into } else { from };
        if near.memory == MemoryType::Host {
            let (from, into) = (from.address.0, into.address.0);
            let (from, into) = (
                std::ptr::with_exposed_provenance::<u8>(from),
                std::ptr::with_exposed_provenance_mut::<u8>(into),
            );
            // SAFETY: host memory of the program, which it keeps until its stream goes on.
            unsafe { std::ptr::copy(from, into, near.len_bytes) };
            return Ok(None);
        }
        let lane = gpus.lane(near)?;
        Ok(Some(Part::Device(gpus.copy(lane, Order::Own, from, into)?)))
    }

    fn begin_collective(
        &mut self,
        work: &CollectiveWork,
        parts: &mut Vec<Part>,
    ) -> Result<Collective, Failure> {
        let prepared = work.prepare(self.process.gpus(), self.rank, self.size)?;
        if let Some((from, into)) = prepared.beside {
            parts.extend(self.copy(from, into)?);
        }
        let asks = prepared.average
            && self.communicator.is_one_device()
            && self.declined_in_a_row < PATIENCE
            && !matches!(prepared.temporary, Some((Place::Output, _)));
        let mut collective = Collective {
            prepared,
            datatype: work.element,
            block: None,
            operation: None,
            asks,
            last: None,
        };
        if !asks {
            self.scale_before(&mut collective)?;
        }
        self.start_collective(&mut collective)?;
        Ok(collective)
    }

    /// Takes the temporary block, and does to the input what comes before.
    fn scale_before(&mut self, collective: &mut Collective) -> Result<(), Failure> {
        let Collective { prepared, datatype, block, .. } = collective;
        let gpus = self.process.gpus();
        let program_input = prepared.input;
        if let Some((place, bytes)) = prepared.temporary {
            let like = if place == Place::Input { prepared.input } else { prepared.output };
            if like.memory == MemoryType::Host {
                return Err(Failure::argument(
                    "this in-place form needs its buffers in device memory",
                ));
            }
            let lane = gpus.lane(like)?;
            let taken = gpus.take_device(lane, bytes)?;
            let region = taken.region(bytes);
            match place {
                Place::Input => prepared.input = region,
                Place::Output => prepared.output = region,
            }
            *block = Some(taken);
        }
        if let Some(scale) = prepared.before {
            let (from, into) = match prepared.call.in_place {
                true => (prepared.output, prepared.output),
                false => (program_input, prepared.input),
            };
            queue_scale(gpus, scale, *datatype, from, into)?;
        }
        Ok(())
    }

    fn start_collective(&mut self, collective: &mut Collective) -> Result<(), Failure> {
        let Collective { prepared, operation, asks, .. } = collective;
        // So long as the whole vector must stay together, the runtime cuts by its own settings.
        prepared.call.chunk = self.process.settings().chunk(prepared.element_bytes);
        let request = Request {
            call: &prepared.call,
            element_bytes: prepared.element_bytes,
            reduction: prepared.reduction,
            input: prepared.input,
            output: prepared.output,
            fill_output: prepared.fill_output,
            average: *asks,
            mode: Mode::Nonblocking,
        };
        // SAFETY: the program keeps its buffers until its stream goes on, as NCCL demands; the block is kept here.
        *operation = Some(unsafe { self.process.start(&mut self.communicator, &request)? });
        Ok(())
    }

    fn advance_collective(&mut self, collective: &mut Collective) -> Result<bool, Failure> {
        while let Some(mut operation) = collective.operation.take() {
            if !self.process.poll(&mut self.communicator, &mut operation)? {
                collective.operation = Some(operation);
                return Ok(false);
            }
            let declined = operation.was_declined();
            self.process.recycle(operation);
            if !collective.asks {
                collective.last = self.finish_collective(collective)?;
            } else if declined {
                self.declined_in_a_row += 1;
                collective.asks = false;
                self.scale_before(collective)?;
                self.start_collective(collective)?;
            } else {
                self.declined_in_a_row = 0;
            }
        }
        if let Some(last) = collective.last
            && !self.process.gpus().test(last)?
        {
            return Ok(false);
        }
        if let Some(block) = collective.block.take() {
            self.process.gpus().put(block);
        }
        Ok(true)
    }

    /// The collective is done: what comes after it on this rank's device.
    fn finish_collective(&mut self, collective: &Collective) -> Result<Option<Handle>, Failure> {
        let Prepared { output, after, move_to, .. } = collective.prepared;
        if output.len_bytes == 0 || (after.is_none() && move_to.is_none()) {
            return Ok(None);
        }
        let gpus = self.process.gpus();
        let lane = gpus.lane(output)?;
        if let Some(scale) = after {
            queue_scale(gpus, scale, collective.datatype, output, output)?;
        }
        if let Some(into) = move_to {
            gpus.queue_copy(lane, Order::Own, output, into)?;
        }
        Ok(Some(gpus.mark(lane, Order::Own)?))
    }
}

fn queue_scale(
    gpus: &mut Gpus,
    scale: Scale,
    element: crate::abi::Element,
    from: Region,
    into: Region,
) -> Result<(), Failure> {
    if into.len_bytes == 0 {
        return Ok(());
    }
    let lane = gpus.lane(into)?;
    let change = match scale {
        Scale::By(change) => change,
        Scale::ByScalarAt(address) => {
            Change::Multiply(read_scalar(gpus, lane, address, element.size_bytes())?)
        }
    };
    let count = into.len_bytes / element.size_bytes();
    gpus.queue_map(lane, (change, element.mapped()), from.address.0, into.address.0, count)?;
    Ok(())
}

/// The bits of an element in device memory.
fn read_scalar(
    gpus: &mut Gpus,
    lane: Lane,
    address: usize,
    len_bytes: usize,
) -> Result<u64, Failure> {
    let from = operation::region(gpus, address, len_bytes)?;
    let mut bytes = [0u8; 8];
    if from.memory == MemoryType::Host {
        let pointer = std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: the program's scalar, which it keeps until its stream goes on.
        unsafe { std::ptr::copy_nonoverlapping(pointer, bytes.as_mut_ptr(), len_bytes) };
        return Ok(u64::from_le_bytes(bytes));
    }
    let block = gpus.take_pinned(lane, 8)?;
    let into = block.region(len_bytes);
    let copied = gpus.copy(lane, Order::Own, from, into).and_then(|handle| gpus.finish(handle));
    if copied.is_ok() {
        let pointer = std::ptr::with_exposed_provenance::<u8>(into.address.0);
        // SAFETY: pinned memory of this length, which the device has finished with.
        unsafe { std::ptr::copy_nonoverlapping(pointer, bytes.as_mut_ptr(), len_bytes) };
    }
    gpus.put(block);
    copied?;
    Ok(u64::from_le_bytes(bytes))
}
