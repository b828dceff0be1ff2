//! A task under way.

use hetccl_core::{Handle, MemoryType, Posted, Rank, Region};
use hetccl_runtime::Direction;
use hetccl_runtime::gpu::Order;

use super::collective::{Asking, Collective};
use super::replay::CallInGraph;
use super::slices::Slices;
use super::{Engine, Task};
use crate::Failure;
use crate::operation::{self, CollectiveWork, Signal, Work};

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
    /// Collectives that are done one after the other when all parts have ended, by their places among the works: what is
    /// started later than the task must be started in the same order on all ranks.
    later: Vec<(usize, CollectiveWork)>,
    slices: Option<Slices>,
    started: bool,
    /// Whether rank 0 has declined anything, or has done something that it might have declined.
    declined: Option<bool>,
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
    /// Rank 0 is asked to do it.
    Asking(Box<Asking>),
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
        Running {
            end,
            works,
            parts: Vec::new(),
            later: Vec::new(),
            slices: None,
            started: false,
            declined: None,
        }
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
                Part::Asking(asking) => match self.advance_asking(asking)? {
                    None => false,
                    Some(declined) => {
                        if declined {
                            task.later.push((asking.index, asking.work.clone()));
                        }
                        task.declined = Some(declined || task.declined == Some(true));
                        true
                    }
                },
            };
            if finished {
                task.parts.swap_remove(index);
            } else {
                index += 1;
            }
        }
        if !task.parts.is_empty() || !self.advance_later(task)? {
            return Ok(false);
        }
        self.note_answer(task.declined);
        Ok(true)
    }

    /// Does what comes after the parts; whether all of it has been done.
    fn advance_later(&mut self, task: &mut Running) -> Result<bool, Failure> {
        loop {
            if let Some(slices) = &mut task.slices {
                if !self.advance_slices(slices)? {
                    return Ok(false);
                }
                task.slices = None;
            }
            let next = task.later.iter().enumerate().min_by_key(|(_, (index, _))| *index);
            let Some((place, _)) = next else { return Ok(true) };
            let (_, work) = task.later.swap_remove(place);
            task.slices = Some(Slices::new(work, self.size));
        }
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
                Part::Collective(collective) => self.cancel(collective.operation),
                Part::Asking(asking) => self.cancel(asking.operation),
            }
        }
        for slice in task.slices.into_iter().flat_map(Slices::under_way) {
            self.cancel(slice.operation);
        }
    }

    fn start(&mut self, task: &mut Running) -> Result<(), Failure> {
        // The program keeps its buffers while the task runs.
        self.process.gpus().begin_work();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (index, work) in task.works.clone().into_iter().enumerate() {
            match work {
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
                Work::Collective(work) => {
                    self.begin(index, work, task)?;
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

    /// Starts a collective, or leaves it for later.
    fn begin(
        &mut self,
        index: usize,
        work: CollectiveWork,
        task: &mut Running,
    ) -> Result<(), Failure> {
        let prepared = work.prepare(self.process.gpus(), self.rank, self.size)?;
        if self.asks(&prepared, &work) {
            let asking = self.ask(index, work, prepared)?;
            task.parts.push(Part::Asking(Box::new(asking)));
        } else if Slices::are_wanted(&work, self.size) {
            task.later.push((index, work));
        } else {
            if let Some((from, into)) = prepared.beside {
                task.parts.extend(self.copy(from, into)?);
            }
            let collective = self.begin_collective(&work, prepared)?;
            task.parts.push(Part::Collective(Box::new(collective)));
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
}
