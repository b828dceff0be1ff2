//! The process's engine: the wires, scratch memory and schedules that all communicators share.

mod on_device;
mod point_to_point;

use std::borrow::Cow;
use std::cell::RefCell;

use hetccl_core::algorithms::Algorithm;
use hetccl_core::{
    Binding, Call, Collective, Handle, MessageTag, Posted, Rank, Reduction, Region, Run, Transport,
    TransportError,
};
use hetccl_gpu::Gpus;
use hetccl_ucx::{Fabric, Port};

use crate::communicator::{Communicator, Mode, Turn, Wire};
use crate::devices::Devices;
use crate::error::Error;
use crate::host::{ExternalReducer, HostDevice};
use crate::library::LibrarySteps;
use crate::messages::{AnyMemory, Cut, Messages};
use crate::one_device::Progress;
use crate::rdma::Rdma;
use crate::schedules::Schedules;
use crate::scratch::{Block, ScratchPool};
use crate::settings::{GpuPath, Settings};

use on_device::{Memory, OnDevice, SharedTask};
pub use point_to_point::{Direction, MessageCounts};

/// Finished operations that are kept for later ones.
const IDLE_OPERATIONS: usize = 64;

/// What a front end asks for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The collective; its `chunk` comes from [`Settings::chunk`].
    pub call: &'a Call,
    /// Size of an element in bytes.
    pub element_bytes: usize,
    /// The operation, for collectives that reduce.
    pub reduction: Option<Reduction>,
    /// The caller's contribution.
    pub input: Region,
    /// Where the result goes.
    pub output: Region,
    /// The schedule may read the output or leave parts of it alone, so what it holds matters.
    pub fill_output: bool,
    /// Only for rank 0 of ranks that share a device, which does the work of all: where it doesn't, nothing is done, and the
    /// operation ends as [declined](Operation::was_declined) on all ranks.
    pub declinable: bool,
    /// The sum is to be divided by the number of ranks, which only rank 0 can do: for declinable requests.
    pub average: bool,
    /// Who waits for it.
    pub mode: Mode,
}

/// A collective under way. Give it back with [`Process::recycle`] when it is over; that makes the next one cheaper.
#[derive(Debug)]
pub struct Operation(Box<Body>);

/// An operation's own memory, used again by later operations.
#[derive(Debug)]
struct Body {
    run: Run,
    binding: Binding,
    scratch: Option<Block>,
    /// What device buffers among the operation's need.
    device: Option<OnDevice>,
    /// The request, for an operation that rank 0 may do for all.
    shared: Option<Box<SharedTask>>,
    collective: Collective,
    algorithm: &'static Algorithm,
    turn: Turn,
    state: State,
    /// As in the request.
    declinable: bool,
    average: bool,
    declined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the collective that had its message tags before, and for the copies of device buffers.
    Queued,
    Running,
    /// The result is being copied to a device buffer.
    Storing,
    Finished,
}

impl Operation {
    /// The algorithm that carries it out.
    pub fn algorithm(&self) -> &'static Algorithm {
        self.0.algorithm
    }

    /// Its number among the communicator's collectives of its mode.
    pub fn sequence(&self) -> u64 {
        self.0.turn.number
    }

    /// Whether it has finished without having been done; see [`Request::declinable`].
    pub fn was_declined(&self) -> bool {
        self.0.declined
    }
}

/// The engine of a process. See the [module documentation](self).
pub struct Process {
    settings: Settings,
    fabric: Option<Fabric>,
    /// Shared by the transport and the device of a step, which both may need it.
    gpus: RefCell<Gpus>,
    messages: Messages,
    steps: LibrarySteps,
    device: HostDevice,
    scratch: ScratchPool,
    schedules: Schedules,
    /// Finished operations, for later ones.
    idle: Vec<Operation>,
}

impl Process {
    /// An engine with these settings; without UCX until [`use_ucx`](Process::use_ucx).
    pub fn new(settings: Settings, external: Box<dyn ExternalReducer>) -> Process {
        Process {
            scratch: ScratchPool::new(settings.scratch_keep_bytes),
            schedules: Schedules::new(settings.schedule_cache_bytes),
            messages: Messages::new(Cut {
                long_bytes: settings.gpu_long_bytes,
                chunk_bytes: settings.gpu_staging_bytes,
                ring_bytes: settings.gpu_ring_bytes,
                ipc: settings.gpu_path == GpuPath::Auto,
            }),
            steps: LibrarySteps::default(),
            settings,
            fabric: None,
            gpus: RefCell::new(Gpus::new(Vec::new(), 0)),
            device: HostDevice { external },
            idle: Vec::new(),
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Brings UCX in; communicators with [`Wire::Ucx`] need it.
    pub fn use_ucx(&mut self, fabric: Fabric) {
        self.fabric = Some(fabric);
    }

    /// UCX, where it is in use.
    pub fn fabric(&mut self) -> Option<&mut Fabric> {
        self.fabric.as_mut()
    }

    /// Brings GPUs in; requests with device memory need them.
    pub fn use_gpus(&mut self, gpus: Gpus) {
        self.gpus = RefCell::new(gpus);
    }

    /// The GPUs.
    #[inline]
    pub fn gpus(&mut self) -> &mut Gpus {
        self.gpus.get_mut()
    }

    /// Takes UCX out, to close it. Communicators with [`Wire::Ucx`] fail from here on.
    pub fn take_fabric(&mut self) -> Option<Fabric> {
        self.fabric.take()
    }

    /// Whether device memory can go to UCX as it is: it has modules for the memory of all GPUs here, and a NIC can
    /// read and write that memory, or the user has asked for this way.
    ///
    /// # Errors
    /// Why not.
    pub fn device_memory_by_ucx(&self) -> Result<(), String> {
        let Some(fabric) = &self.fabric else { return Err("UCX is not in use".into()) };
        let asked = match self.settings.gpu_path {
            GpuPath::Staging => return Err("gpu_path is staging".into()),
            GpuPath::Ucx => true,
            GpuPath::Auto => false,
        };
        let rdma = Rdma::here();
        for driver in self.gpus.borrow().drivers() {
            let vendor = driver.vendor();
            if !fabric.reaches(vendor.memory()) {
                return Err(format!("UCX has no module for {} memory", vendor.name()));
            }
            if !asked {
                rdma.reaches(vendor)?;
            }
        }
        Ok(())
    }

    /// Lets UCX work; whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.fabric.as_mut().is_some_and(|fabric| fabric.progress())
    }

    /// Starts a collective. Every rank of the communicator starts the same collectives in the same order.
    ///
    /// # Errors
    /// No algorithm, no memory, or a step that fails at once. The collective has then had its turn: the next one may
    /// be started.
    ///
    /// # Safety
    /// The request's regions are memory of this process that stays valid, and unused by others as MPI demands of the
    /// buffers of collectives, until the operation has finished, failed or been cancelled; the same goes for what an
    /// external reduction means.
    pub unsafe fn start(
        &mut self,
        communicator: &mut Communicator,
        request: &Request<'_>,
    ) -> Result<Operation, Error> {
        let turn = communicator.take_turn(request.mode);
        match self.prepare(communicator, request, turn) {
            Ok(mut operation) => {
                if communicator.library.is_some()
                    && operation.0.run.schedule().has_group_steps()
                    && !request.declinable
                {
                    communicator.note_library(turn);
                }
                match self.poll(communicator, &mut operation) {
                    Ok(_) => Ok(operation),
                    Err(error) => {
                        self.recycle(operation);
                        Err(error)
                    }
                }
            }
            Err(error) => {
                communicator.note_finished(turn);
                Err(error)
            }
        }
    }

    /// Takes back an operation that is over. One that is not is forgotten: its memory may still be in use.
    pub fn recycle(&mut self, operation: Operation) {
        if operation.0.state != State::Finished {
            std::mem::forget(operation);
        } else if self.idle.len() < IDLE_OPERATIONS {
            self.idle.push(operation);
        }
    }

    /// Does what can be done now. `Ok(true)` when the collective has finished; asking again is allowed.
    ///
    /// # Errors
    /// The collective failed on this rank and is over.
    #[inline]
    pub fn poll(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Operation,
    ) -> Result<bool, Error> {
        let operation = &mut *operation.0;
        if operation.state == State::Queued {
            if !communicator.may_run(operation.turn) {
                return Ok(false);
            }
            if operation.declinable && operation.shared.is_none() {
                self.decline(communicator, operation);
                return Ok(true);
            }
            if operation.shared.is_some() {
                match self.poll_shared(communicator, operation)? {
                    Progress::Pending => return Ok(false),
                    Progress::Done => return Ok(true),
                    Progress::AsUsual => {}
                }
            }
            if operation.device.is_some() && !self.test_device(communicator, operation)? {
                return Ok(false);
            }
            operation.run.start(operation.binding);
            operation.state = State::Running;
        }
        match operation.state {
            State::Finished => return Ok(true),
            State::Storing => return self.finish_storing(communicator, operation),
            State::Queued | State::Running => {}
        }
        let polled = self.advance(communicator, &mut operation.run);
        match polled {
            Ok(false) => Ok(false),
            Ok(true) if operation.device.is_some() => self.store(communicator, operation),
            Ok(true) => {
                self.retire(communicator, operation);
                Ok(true)
            }
            Err(source) => {
                if matches!(communicator.wire, Wire::Foreign(_)) {
                    // The front end may still write to a receive that it can't take back: this memory is lost.
                    std::mem::forget(operation.scratch.take());
                    std::mem::forget(operation.device.take());
                }
                Err(self.fail(communicator, operation, source))
            }
        }
    }

    /// Runs the steps whose turn it is.
    #[inline]
    fn advance(
        &mut self,
        communicator: &mut Communicator,
        run: &mut Run,
    ) -> Result<bool, TransportError> {
        let Process { fabric, device, gpus, messages, steps, .. } = self;
        let library = communicator.library.as_deref();
        let (any_memory, direct) = (communicator.any_memory, communicator.direct);
        with_transport(fabric, &mut communicator.wire, |inner| {
            if any_memory {
                let mut transport = AnyMemory { inner, gpus, messages, direct };
                run.poll(&mut transport, &mut Devices { host: device, gpus, library, steps })
            } else {
                run.poll(inner, device)
            }
        })
    }

    /// Ends an operation that can't go on.
    #[cold]
    fn fail(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Body,
        source: TransportError,
    ) -> Error {
        self.retire(communicator, operation);
        step_error(communicator, operation.collective, operation.turn, source)
    }

    /// Ends a collective that waits for what will not come. As after an error of [`poll`](Process::poll), the front end may
    /// still write to its buffers.
    pub fn give_up(
        &mut self,
        communicator: &mut Communicator,
        operation: &mut Operation,
        source: TransportError,
    ) -> Error {
        let body = &mut *operation.0;
        let (collective, turn) = (body.collective, body.turn);
        if matches!(communicator.wire, Wire::Foreign(_)) {
            // The front end may still write to a receive that it can't take back: this memory is lost.
            std::mem::forget(body.scratch.take());
            std::mem::forget(body.device.take());
        }
        self.cancel(communicator, operation);
        step_error(communicator, collective, turn, source)
    }

    /// Gives up on a collective; its buffers may be reused when this returns. Other ranks that wait for this one's
    /// part wait on.
    pub fn cancel(&mut self, communicator: &mut Communicator, operation: &mut Operation) {
        let operation = &mut *operation.0;
        if operation.state == State::Running {
            let run = &mut operation.run;
            let Process { fabric, gpus, messages, .. } = self;
            let (any_memory, direct) = (communicator.any_memory, communicator.direct);
            with_transport(fabric, &mut communicator.wire, |inner| {
                if any_memory {
                    run.cancel(&mut AnyMemory { inner, gpus, messages, direct });
                } else {
                    run.cancel(inner);
                }
            });
        }
        self.give_up_shared(communicator, operation);
        if operation.state != State::Finished {
            self.retire(communicator, operation);
        }
    }

    fn prepare(
        &mut self,
        communicator: &mut Communicator,
        request: &Request<'_>,
        turn: Turn,
    ) -> Result<Operation, Error> {
        let collective = request.call.collective;
        let call = self.cut(communicator, request);
        let (algorithm, schedule) = self
            .schedules
            .get(&call, request.element_bytes, &self.settings)
            .ok_or(Error::NoAlgorithm { collective })?;
        let scratch_bytes = Run::scratch_bytes(&schedule, request.element_bytes);
        let shared =
            if communicator.one_device { SharedTask::of(communicator, request) } else { None };
        let memory = match &shared {
            None if !request.declinable => {
                self.memory(communicator, request, turn, scratch_bytes)?
            }
            _ => Memory::of(request),
        };
        let Memory { input, output, scratch, block, device } = memory;
        let binding = Binding {
            input,
            output,
            scratch,
            element_bytes: request.element_bytes,
            reduction: request.reduction,
            sequence: turn.tag,
        };
        let state = State::Queued;
        Ok(match self.idle.pop() {
            Some(mut operation) => {
                let body = &mut *operation.0;
                body.run.reset(schedule);
                body.binding = binding;
                (body.scratch, body.device, body.shared) = (block, device, shared);
                (body.collective, body.algorithm) = (collective, algorithm);
                (body.turn, body.state) = (turn, state);
                (body.declinable, body.average) = (request.declinable, request.average);
                body.declined = false;
                operation
            }
            None => {
                let run = Run::new(schedule);
                Operation(Box::new(Body {
                    run,
                    binding,
                    scratch: block,
                    device,
                    shared,
                    collective,
                    algorithm,
                    turn,
                    state,
                    declinable: request.declinable,
                    average: request.average,
                    declined: false,
                }))
            }
        })
    }

    /// The call with chunks that suit devices, where some rank may have one, and the machine, where it is known.
    #[inline]
    fn cut<'a>(&self, communicator: &Communicator, request: &Request<'a>) -> Cow<'a, Call> {
        let topology = communicator.machine(request).cloned();
        if !communicator.any_memory && topology.is_none() {
            return Cow::Borrowed(request.call);
        }
        let chunk = match communicator.any_memory {
            true => (self.settings.gpu_chunk_bytes / request.element_bytes.max(1)).max(1),
            false => request.call.chunk,
        };
        Cow::Owned(Call { chunk, topology, ..request.call.clone() })
    }

    /// Ends an operation that nobody will do.
    #[cold]
    fn decline(&mut self, communicator: &mut Communicator, operation: &mut Body) {
        operation.declined = true;
        self.retire(communicator, operation);
    }

    /// Ends an operation: the next with its tags may run, its scratch memory is free.
    fn retire(&mut self, communicator: &mut Communicator, operation: &mut Body) {
        operation.state = State::Finished;
        communicator.note_finished(operation.turn);
        if let Some(block) = operation.scratch.take() {
            self.scratch.put(block);
        }
        operation.shared = None;
        if let Some(device) = operation.device.take() {
            device.release(self.gpus.get_mut());
        }
    }
}

fn step_error(
    communicator: &Communicator,
    collective: Collective,
    turn: Turn,
    source: TransportError,
) -> Error {
    Error::Step {
        collective,
        sequence: turn.number,
        context: communicator.context,
        rank: communicator.group.rank,
        size: communicator.group.size,
        source,
    }
}

/// Runs `f` with the transport behind a communicator's wire.
#[inline]
fn with_transport<T>(
    fabric: &mut Option<Fabric>,
    wire: &mut Wire,
    f: impl FnOnce(&mut dyn Transport) -> T,
) -> T {
    match wire {
        Wire::Ucx(channel) => match fabric {
            Some(fabric) => f(&mut Port { fabric, channel }),
            None => f(&mut Nowhere("UCX has been closed in this process")),
        },
        Wire::Foreign(transport) => f(&mut **transport),
        Wire::Alone => f(&mut Nowhere("the communicator has no other rank")),
    }
}

/// A transport to nobody, with the reason.
struct Nowhere(&'static str);

impl Nowhere {
    fn refuse(&self, peer: Rank) -> Result<Posted, TransportError> {
        Err(TransportError::Unreachable { peer, reason: self.0.into() })
    }
}

impl Transport for Nowhere {
    fn send(&mut self, peer: Rank, _: MessageTag, _: Region) -> Result<Posted, TransportError> {
        self.refuse(peer)
    }
    fn recv(&mut self, peer: Rank, _: MessageTag, _: Region) -> Result<Posted, TransportError> {
        self.refuse(peer)
    }
    fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
        Ok(true)
    }
    fn cancel(&mut self, _: Handle) {}
}
