//! One collective: what comes before it, the runtime's operation, what comes after.

use hetccl_core::{Handle, MemoryType, Region};
use hetccl_runtime::gpu::{Block, Change, Gpus, Lane, MOST_INPUTS, Order};
use hetccl_runtime::{Mode, Operation, Request};

use super::Engine;
use super::slices::Slices;
use crate::Failure;
use crate::operation::{self, CollectiveWork, Place, Prepared, Scale};

/// Rank 0 is asked to do things alone until it has declined in so many tasks in a row, which all ranks know.
const PATIENCE: u32 = 3;

#[derive(Debug)]
pub(super) struct Collective {
    prepared: Prepared,
    datatype: crate::abi::Element,
    block: Option<Block>,
    pub(super) operation: Option<Operation>,
    /// What the device does after it.
    last: Option<Handle>,
}

/// A collective that rank 0 may do for all, averages and all, or decline.
#[derive(Debug)]
pub(super) struct Asking {
    /// Its place among the task's works.
    pub(super) index: usize,
    pub(super) work: CollectiveWork,
    pub(super) operation: Option<Operation>,
    /// What the operation's call is; it stays where it is until that has ended.
    prepared: Prepared,
}

impl Engine {
    /// Whether rank 0 is asked to do a collective alone; the same on all ranks.
    pub(super) fn asks(&self, prepared: &Prepared, work: &CollectiveWork) -> bool {
        let gains = prepared.average || (work.is_plain() && Slices::are_wanted(work, self.size));
        // The result of NCCL's in-place form replaces what only it is made of, in one pass.
        let in_one_pass = !matches!(prepared.temporary, Some((Place::Output, _)))
            || (self.size <= MOST_INPUTS && work.is_reduce_scatter_in_place(self.rank));
        gains
            && in_one_pass
            && self.communicator.is_one_device()
            && self.declined_in_a_row < PATIENCE
    }

    /// Asks rank 0.
    pub(super) fn ask(
        &mut self,
        index: usize,
        work: CollectiveWork,
        prepared: Prepared,
    ) -> Result<Asking, Failure> {
        let mut asking = Asking { index, work, operation: None, prepared };
        let average = asking.prepared.average;
        asking.operation = Some(self.start_operation(&mut asking.prepared, true, average)?);
        Ok(asking)
    }

    /// Whether rank 0 has declined, once that is known.
    pub(super) fn advance_asking(&mut self, asking: &mut Asking) -> Result<Option<bool>, Failure> {
        let Some(operation) = &mut asking.operation else { return Ok(Some(false)) };
        if !self.process.poll(&mut self.communicator, operation)? {
            return Ok(None);
        }
        let declined = operation.was_declined();
        if let Some(operation) = asking.operation.take() {
            self.process.recycle(operation);
        }
        Ok(Some(declined))
    }

    /// Notes what rank 0 has answered to a task's questions.
    pub(super) fn note_answer(&mut self, declined: Option<bool>) {
        match declined {
            None => {}
            Some(true) => self.declined_in_a_row += 1,
            Some(false) => self.declined_in_a_row = 0,
        }
    }

    /// Starts a collective.
    pub(super) fn begin_collective(
        &mut self,
        work: &CollectiveWork,
        prepared: Prepared,
    ) -> Result<Collective, Failure> {
        let mut collective = Collective {
            prepared,
            datatype: work.element,
            block: None,
            operation: None,
            last: None,
        };
        self.scale_before(&mut collective)?;
        collective.operation =
            Some(self.start_operation(&mut collective.prepared, false, false)?);
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

    fn start_operation(
        &mut self,
        prepared: &mut Prepared,
        declinable: bool,
        average: bool,
    ) -> Result<Operation, Failure> {
        // So long as the whole vector must stay together, the runtime cuts by its own settings.
        prepared.call.chunk = self.process.settings().chunk(prepared.element_bytes);
        let request = Request {
            call: &prepared.call,
            element_bytes: prepared.element_bytes,
            reduction: prepared.reduction,
            input: prepared.input,
            output: prepared.output,
            fill_output: prepared.fill_output,
            declinable,
            average,
            mode: Mode::Nonblocking,
        };
        // SAFETY: the program keeps its buffers until its stream goes on, as NCCL demands; blocks are kept with the operation.
        Ok(unsafe { self.process.start(&mut self.communicator, &request)? })
    }

    /// Whether a collective has ended.
    pub(super) fn advance_collective(
        &mut self,
        collective: &mut Collective,
    ) -> Result<bool, Failure> {
        if let Some(operation) = &mut collective.operation {
            if !self.process.poll(&mut self.communicator, operation)? {
                return Ok(false);
            }
            if let Some(operation) = collective.operation.take() {
                self.process.recycle(operation);
            }
            collective.last = self.finish_collective(collective)?;
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

    /// Gives up on an operation.
    pub(super) fn cancel(&mut self, operation: Option<Operation>) {
        if let Some(mut operation) = operation {
            self.process.cancel(&mut self.communicator, &mut operation);
        }
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
