//! Operations with device buffers: on copies, where they are, or by rank 0 for all.

use hetccl_core::{Call, MemoryType, Region};
use hetccl_gpu::Gpus;

use super::{Body, Process, Request, State, step_error, with_transport};
use crate::communicator::{Communicator, Mode, Turn};
use crate::error::Error;
use crate::one_device::{Progress, Shared, Task};
use crate::resident::{self, Resident};
use crate::scratch::Block;
use crate::staging::Staging;

/// How an operation works with device buffers.
#[derive(Debug)]
pub(super) enum OnDevice {
    /// On copies in host memory.
    Staged(Staging),
    /// Where they are.
    Resident(Resident),
}

impl OnDevice {
    /// Gives back what it has; nothing under way uses it.
    pub(super) fn release(self, gpus: &mut Gpus) {
        match self {
            OnDevice::Staged(staging) => staging.release(gpus),
            OnDevice::Resident(resident) => resident.release(gpus),
        }
    }
}

/// The memory that a schedule is run with.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) input: Region,
    pub(super) output: Region,
    pub(super) scratch: Region,
    /// The scratch memory, where it is the host's.
    pub(super) block: Option<Block>,
    pub(super) device: Option<OnDevice>,
}

impl Memory {
    /// The request's buffers as they are, and no scratch memory.
    pub(super) fn of(request: &Request<'_>) -> Memory {
        Memory {
            input: request.input,
            output: request.output,
            scratch: Region::default(),
            block: None,
            device: None,
        }
    }
}

/// An operation that rank 0 may do for all.
#[derive(Debug)]
pub(super) struct SharedTask {
    /// This rank's part, once its turn has come.
    shared: Option<Shared>,
    call: Call,
    fill_output: bool,
}

impl SharedTask {
    /// For a request that ranks are to ask rank 0 to do.
    pub(super) fn of(
        communicator: &mut Communicator,
        request: &Request<'_>,
    ) -> Option<Box<SharedTask>> {
        let task = Task::of(request, 0);
        let ask = task.can_be_shared()
            && (request.mode != Mode::Blocking || communicator.asking.next(task.kind()));
        let (call, fill_output) = (request.call, request.fill_output);
        ask.then(|| Box::new(SharedTask { shared: None, call: call.clone(), fill_output }))
    }
}

impl Process {
    /// Whether what was started on a device for the operation has finished.
    #[cold]
    pub(super) fn test_device(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Body,
    ) -> Result<bool, Error> {
        let gpus = self.gpus.get_mut();
        let tested = match &mut operation.device {
            None => return Ok(true),
            Some(OnDevice::Staged(staging)) => staging.test(gpus),
            Some(OnDevice::Resident(resident)) => resident.test(gpus),
        };
        tested.map_err(|error| self.fail(communicator, operation, error.into()))
    }

    /// The result is there: copies it to the device buffer, if it isn't there already.
    #[cold]
    pub(super) fn store(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Body,
    ) -> Result<bool, Error> {
        if let Some(OnDevice::Staged(staging)) = &mut operation.device
            && let Err(error) = staging.store(self.gpus.get_mut())
        {
            return Err(self.fail(communicator, operation, error.into()));
        }
        operation.state = State::Storing;
        self.finish_storing(communicator, operation)
    }

    #[cold]
    pub(super) fn finish_storing(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Body,
    ) -> Result<bool, Error> {
        let finished = self.test_device(communicator, operation)?;
        if finished {
            self.retire(communicator, operation);
        }
        Ok(finished)
    }

    /// What the request's device buffers need, begun.
    #[inline]
    fn on_device(
        &mut self,
        communicator: &Communicator,
        request: &Request<'_>,
        scratch_bytes: usize,
    ) -> Result<Option<OnDevice>, hetccl_gpu::Error> {
        let buffers = [request.input, request.output];
        if buffers.iter().all(|buffer| buffer.memory == MemoryType::Host) {
            return Ok(None);
        }
        let gpus = self.gpus.get_mut();
        let bytes = buffers.iter().map(|buffer| buffer.len_bytes).sum::<usize>();
        if communicator.any_memory
            && bytes >= self.settings.gpu_resident_bytes
            && let Some(lane) = resident::common_lane(gpus, buffers)?
            && Resident::can_reduce(gpus, lane, request.reduction)
        {
            match Resident::begin(gpus, lane, scratch_bytes) {
                Ok(resident) => return Ok(Some(OnDevice::Resident(resident))),
                // The device may be full: host memory then does. Other trouble shows there as well.
                Err(hetccl_gpu::Error::Call { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let fill = request.fill_output || request.call.in_place;
        Ok(Some(OnDevice::Staged(Staging::begin(gpus, request.input, request.output, fill)?)))
    }

    /// Asks how far the operation is that rank 0 may do for all.
    #[cold]
    pub(super) fn poll_shared(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Body,
    ) -> Result<Progress, Error> {
        let Some(mut task) = operation.shared.take() else { return Ok(Progress::AsUsual) };
        let binding = operation.binding;
        let request = Request {
            call: &task.call,
            element_bytes: binding.element_bytes,
            reduction: binding.reduction,
            input: binding.input,
            output: binding.output,
            fill_output: task.fill_output,
            declinable: operation.declinable,
            average: operation.average,
            mode: Mode::Blocking,
        };
        let described = Task::of(&request, binding.sequence);
        let gpus = self.gpus.get_mut();
        let shared = &mut task.shared;
        let polled = with_transport(&mut self.fabric, &mut communicator.wire, |inner| {
            if shared.is_none() {
                *shared = Some(Shared::begin(&described, inner, gpus)?);
            }
            match shared {
                Some(part) => part.advance(&described, inner, gpus),
                None => Ok(Progress::AsUsual),
            }
        });
        if operation.turn.mode == Mode::Blocking
            && let Ok(answer @ (Progress::Done | Progress::AsUsual)) = polled
        {
            communicator.asking.note(described.kind(), answer == Progress::AsUsual);
        }
        match polled {
            Ok(Progress::Pending) => {
                operation.shared = Some(task);
                Ok(Progress::Pending)
            }
            Ok(Progress::Done) => {
                self.retire(communicator, operation);
                Ok(Progress::Done)
            }
            Ok(Progress::AsUsual) if operation.declinable => {
                self.decline(communicator, operation);
                Ok(Progress::Done)
            }
            Ok(Progress::AsUsual) => {
                let scratch_bytes = hetccl_core::Run::scratch_bytes(
                    operation.run.schedule(),
                    request.element_bytes,
                );
                let memory = self.memory(communicator, &request, operation.turn, scratch_bytes);
                let memory = match memory {
                    Ok(memory) => memory,
                    Err(error) => {
                        self.retire(communicator, operation);
                        return Err(error);
                    }
                };
                let Memory { input, output, scratch, block, device } = memory;
                (operation.binding.input, operation.binding.output) = (input, output);
                operation.binding.scratch = scratch;
                (operation.scratch, operation.device) = (block, device);
                Ok(Progress::AsUsual)
            }
            Err(source) => {
                operation.shared = Some(task);
                self.give_up_shared(communicator, operation);
                Err(self.fail(communicator, operation, source))
            }
        }
    }

    /// Ends this rank's part in what rank 0 may do for all.
    pub(super) fn give_up_shared(&mut self, communicator: &mut Communicator, operation: &mut Body) {
        let shared = operation.shared.take().and_then(|task| task.shared);
        if let Some(shared) = shared {
            let gpus = self.gpus.get_mut();
            with_transport(&mut self.fabric, &mut communicator.wire, |inner| {
                shared.give_up(inner, gpus);
            });
        }
    }

    /// The memory for a request's schedule.
    ///
    /// # Errors
    /// A driver's, or there is no memory.
    #[inline]
    pub(super) fn memory(
        &mut self,
        communicator: &Communicator,
        request: &Request<'_>,
        turn: Turn,
        scratch_bytes: usize,
    ) -> Result<Memory, Error> {
        let collective = request.call.collective;
        let mut memory = Memory::of(request);
        memory.device = self
            .on_device(communicator, request, scratch_bytes)
            .map_err(|error| step_error(communicator, collective, turn, error.into()))?;
        match &memory.device {
            Some(OnDevice::Resident(resident)) => {
                memory.scratch = resident.scratch();
                return Ok(memory);
            }
            Some(OnDevice::Staged(staging)) => {
                (memory.input, memory.output) = staging.regions(memory.input, memory.output);
            }
            None => {}
        }
        if scratch_bytes > 0 {
            memory.block = self.scratch.take(scratch_bytes);
            match &memory.block {
                Some(block) => memory.scratch = block.region(),
                None => {
                    if let Some(device) = memory.device {
                        device.release(self.gpus.get_mut());
                    }
                    return Err(Error::OutOfMemory { collective, bytes: scratch_bytes });
                }
            }
        }
        Ok(memory)
    }
}
