//! Runs a [`Schedule`]: starts the steps whose turn it is, asks for those under way, and releases the
//! steps that waited for them.
//!
//! A [`Run`] owns the counters of one execution and no memory of the caller's; it can be started any
//! number of times (persistent collectives). Where the device works in the order in which it is asked
//! ([`Device::in_order`]), copies, reductions and collectives of the vendor's library follow each other there without
//! the host's help; only messages wait until the host has seen that the work before them is done. Between polls it holds nothing but handles, so blocking
//! and nonblocking collectives are the same code polled from different places.

use std::sync::Arc;

use crate::op::Reduction;
use crate::schedule::{Buffer, Schedule, Span, Step, StepId};
use crate::transport::{Device, GroupCall, Handle, MessageTag, Posted, Transport, TransportError};
use crate::types::{Address, MemoryType, Region};

/// Scratch buffers start on multiples of this many bytes.
const SCRATCH_ALIGN_BYTES: usize = 64;

/// The memory and numbers that a schedule is run with.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The caller's contribution; ignored by schedules that are in place.
    pub input: Region,
    /// Where the result goes.
    pub output: Region,
    /// Memory of at least [`Run::scratch_bytes`] bytes.
    pub scratch: Region,
    /// Size of one element in bytes.
    pub element_bytes: usize,
    /// The operation of `Reduce` steps.
    pub reduction: Option<Reduction>,
    /// The collective's number in its communicator.
    pub sequence: u16,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Transport,
    Device,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    step: StepId,
    handle: Handle,
    owner: Owner,
    /// Steps that the device keeps in order after this one have been released.
    released: bool,
}

/// Who does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Local,
    Group,
}

impl Kind {
    fn of(step: &Step) -> Kind {
        match step {
            Step::Send { .. } | Step::Recv { .. } => Kind::Message,
            Step::Copy { .. } | Step::Reduce { .. } => Kind::Local,
            Step::Group { .. } => Kind::Group,
        }
    }

    /// Whether a device in order keeps `later` after this. A copy or reduction must not stand behind a collective of the library,
    /// which may wait for ranks that wait for what comes behind it.
    fn keeps(self, later: Kind) -> bool {
        matches!(
            (self, later),
            (Kind::Local, Kind::Local | Kind::Group) | (Kind::Group, Kind::Group)
        )
    }
}

/// One execution of a schedule. See the [module documentation](self).
#[derive(Debug)]
pub struct Run {
    schedule: Arc<Schedule>,
    binding: Binding,
    /// Regions of Input, Output, Scratch(0), Scratch(1), ...
    regions: Vec<Region>,
    waiting: Vec<u32>,
    /// Steps whose turn has come, in order; those before `next` have been started.
    ready: Vec<StepId>,
    next: usize,
    in_flight: Vec<InFlight>,
    unfinished: usize,
}

impl Run {
    /// A run of `schedule` that has not been started: [`poll`](Run::poll) says finished until then.
    pub fn new(schedule: Arc<Schedule>) -> Run {
        let empty = Region::default();
        Run {
            schedule,
            binding: Binding {
                input: empty,
                output: empty,
                scratch: empty,
                element_bytes: 1,
                reduction: None,
                sequence: 0,
            },
            regions: Vec::new(),
            waiting: Vec::new(),
            ready: Vec::new(),
            next: 0,
            in_flight: Vec::new(),
            unfinished: 0,
        }
    }

    /// Turns this into a run of another schedule, keeping its allocations. The run must be finished or cancelled.
    pub fn reset(&mut self, schedule: Arc<Schedule>) {
        debug_assert!(self.in_flight.is_empty(), "reset of a run with steps in flight");
        self.schedule = schedule;
        self.unfinished = 0;
    }

    /// The schedule.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Bytes of scratch memory that a run of `schedule` needs with elements of `element_bytes`.
    pub fn scratch_bytes(schedule: &Schedule, element_bytes: usize) -> usize {
        schedule.scratch.iter().map(|&len| align_up(len * element_bytes)).sum()
    }

    /// Starts the run: binds the buffers and makes the steps that wait for nothing ready.
    ///
    /// # Panics
    /// When the scratch region is too small, or a run is under way.
    pub fn start(&mut self, binding: Binding) {
        assert!(
            self.unfinished == 0 && self.in_flight.is_empty(),
            "start of a run that is under way"
        );
        let schedule = &*self.schedule;
        self.binding = binding;
        self.regions.clear();
        let input = if schedule.in_place { binding.output } else { binding.input };
        self.regions.extend([input, binding.output]);
        let mut offset = 0;
        for &len in &schedule.scratch {
            let len_bytes = len * binding.element_bytes;
            assert!(offset + len_bytes <= binding.scratch.len_bytes, "scratch memory too small");
            self.regions.push(binding.scratch.slice(offset, len_bytes));
            offset = (offset + align_up(len_bytes)).min(binding.scratch.len_bytes);
        }
        self.waiting.clear();
        self.waiting.extend_from_slice(&schedule.waits_for);
        self.ready.clear();
        self.next = 0;
        self.unfinished = schedule.steps.len();
        for (i, &count) in self.waiting.iter().enumerate() {
            if count == 0 {
                self.ready.push(StepId(i as u32));
            }
        }
    }

    /// Does all that can be done now. `Ok(true)` when every step has finished.
    ///
    /// # Errors
    /// The first failure of a step; the other steps in flight are cancelled and the run is over.
    pub fn poll(
        &mut self,
        transport: &mut dyn Transport,
        device: &mut dyn Device,
    ) -> Result<bool, TransportError> {
        match self.advance(transport, device) {
            Ok(finished) => Ok(finished),
            Err(error) => {
                self.cancel(transport);
                Err(error)
            }
        }
    }

    /// Gives up: cancels what is in flight. Memory may be reused when this returns.
    pub fn cancel(&mut self, transport: &mut dyn Transport) {
        for flight in self.in_flight.drain(..) {
            if matches!(flight.owner, Owner::Transport) {
                transport.cancel(flight.handle);
            }
        }
        self.unfinished = 0;
    }

    /// Steps not finished yet; 0 when the run is over.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    fn advance(
        &mut self,
        transport: &mut dyn Transport,
        device: &mut dyn Device,
    ) -> Result<bool, TransportError> {
        loop {
            while self.next < self.ready.len() {
                let step = self.ready[self.next];
                self.next += 1;
                match self.begin(step, transport, device)? {
                    (Posted::Done, _) => self.complete(step, false),
                    (Posted::Pending(handle), owner) => {
                        let released = matches!(owner, Owner::Device) && device.in_order();
                        if released {
                            self.release(step, |before, later| before.keeps(later));
                        }
                        self.in_flight.push(InFlight { step, handle, owner, released });
                    }
                }
            }
            if self.unfinished == 0 {
                return Ok(true);
            }
            if !self.collect(transport, device)? {
                return Ok(false);
            }
        }
    }

    /// Asks for every step in flight; whether one has finished.
    fn collect(
        &mut self,
        transport: &mut dyn Transport,
        device: &mut dyn Device,
    ) -> Result<bool, TransportError> {
        let mut any = false;
        let mut i = 0;
        while i < self.in_flight.len() {
            let InFlight { step, handle, owner, released } = self.in_flight[i];
            let tested = match owner {
                Owner::Transport => transport.test(handle),
                Owner::Device => device.test(handle),
            };
            match tested {
                Ok(false) => i += 1,
                Ok(true) => {
                    self.in_flight.swap_remove(i);
                    self.complete(step, released);
                    any = true;
                }
                Err(error) => {
                    self.in_flight.swap_remove(i);
                    return Err(error);
                }
            }
        }
        Ok(any)
    }

    fn begin(
        &self,
        step: StepId,
        transport: &mut dyn Transport,
        device: &mut dyn Device,
    ) -> Result<(Posted, Owner), TransportError> {
        let tag = |message| MessageTag { sequence: self.binding.sequence, step: message };
        Ok(match self.schedule.steps[step.0 as usize] {
            Step::Send { peer, message, from } => {
                (transport.send(peer, tag(message), self.region(&from))?, Owner::Transport)
            }
            Step::Recv { peer, message, into } => {
                (transport.recv(peer, tag(message), self.region(&into))?, Owner::Transport)
            }
            Step::Copy { from, into } => {
                (device.copy(self.region(&from), self.region(&into))?, Owner::Device)
            }
            Step::Reduce { left, right, into } => {
                let Some(reduction) = &self.binding.reduction else {
                    return Err(TransportError::Failed {
                        operation: "reduce",
                        native_code: 0,
                        reason: "the collective was started without a reduction operation".into(),
                    });
                };
                let (a, b, c) = (self.region(&left), self.region(&right), self.region(&into));
                (device.reduce(reduction, a, b, c, into.len)?, Owner::Device)
            }
            Step::Group { collective, root, from, into } => {
                let call = GroupCall { collective, root, reduction: self.binding.reduction };
                (device.group(call, self.region(&from), self.region(&into))?, Owner::Device)
            }
        })
    }

    #[inline]
    fn complete(&mut self, step: StepId, released: bool) {
        self.unfinished -= 1;
        self.release(step, |before, later| !(released && before.keeps(later)));
    }

    /// Releases those steps that wait for `step` and that `which` says.
    #[inline]
    fn release(&mut self, step: StepId, which: impl Fn(Kind, Kind) -> bool) {
        let steps = self.schedule.steps();
        let before = Kind::of(&steps[step.0 as usize]);
        for &successor in self.schedule.successors(step) {
            if !which(before, Kind::of(&steps[successor.0 as usize])) {
                continue;
            }
            let count = &mut self.waiting[successor.0 as usize];
            *count -= 1;
            if *count == 0 {
                self.ready.push(successor);
            }
        }
    }

    #[inline]
    fn region(&self, span: &Span) -> Region {
        let index = match span.buffer {
            Buffer::Input => 0,
            Buffer::Output => 1,
            Buffer::Scratch(number) => 2 + number as usize,
        };
        let size = self.binding.element_bytes;
        if span.len == 0 {
            return Region { address: Address(0), len_bytes: 0, memory: MemoryType::Host };
        }
        self.regions[index].slice(span.start * size, span.len * size)
    }
}

#[inline]
const fn align_up(len_bytes: usize) -> usize {
    len_bytes.next_multiple_of(SCRATCH_ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::schedule::GroupCollective;
    use crate::types::Rank;

    /// Finishes nothing at once and everything at the `patience`-th question; notes the order of starts.
    #[derive(Default)]
    struct Slow {
        started: Vec<&'static str>,
        asked: u64,
        fail: bool,
        cancelled: Vec<Handle>,
    }

    impl Transport for Slow {
        fn send(&mut self, _: Rank, _: MessageTag, _: Region) -> Result<Posted, TransportError> {
            self.started.push("send");
            Ok(Posted::Pending(Handle(self.started.len() as u64)))
        }
        fn recv(&mut self, _: Rank, _: MessageTag, _: Region) -> Result<Posted, TransportError> {
            self.started.push("recv");
            Ok(Posted::Pending(Handle(self.started.len() as u64)))
        }
        fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
            self.asked += 1;
            if self.fail {
                return Err(TransportError::PeerFailed { peer: Rank(1), reason: "test".into() });
            }
            Ok(self.asked.is_multiple_of(3))
        }
        fn cancel(&mut self, handle: Handle) {
            self.cancelled.push(handle);
        }
    }

    #[derive(Default)]
    struct Count(usize);

    impl Device for Count {
        fn copy(&mut self, _: Region, _: Region) -> Result<Posted, TransportError> {
            self.0 += 1;
            Ok(Posted::Done)
        }
        fn reduce(
            &mut self,
            _: &Reduction,
            _: Region,
            _: Region,
            _: Region,
            _: usize,
        ) -> Result<Posted, TransportError> {
            self.0 += 1;
            Ok(Posted::Done)
        }
        fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
            Ok(true)
        }
    }

    fn binding(len_bytes: usize) -> Binding {
        let region =
            |address| Region { address: Address(address), len_bytes, memory: MemoryType::Host };
        Binding {
            input: region(0x1000),
            output: region(0x2000),
            scratch: region(0x3000),
            element_bytes: 1,
            reduction: Some(Reduction::External(0)),
            sequence: 7,
        }
    }

    fn exchange() -> Arc<Schedule> {
        let mut b = Builder::new(false);
        let t = b.scratch(8);
        let (input, output) = (Span::new(Buffer::Input, 0, 8), Span::new(Buffer::Output, 0, 8));
        b.recv(Rank(1), t);
        b.send(Rank(1), input);
        b.reduce(input, t, output);
        Arc::new(b.finish())
    }

    #[test]
    fn runs_to_the_end_and_again() {
        let mut run = Run::new(exchange());
        let (mut wire, mut device) = (Slow::default(), Count::default());
        for round in 1..=3 {
            run.start(binding(64));
            let polls = (0..20).take_while(|_| !run.poll(&mut wire, &mut device).unwrap()).count();
            assert!(polls < 20, "never finished");
            assert_eq!(device.0, round);
            assert_eq!(run.unfinished(), 0);
        }
        assert_eq!(wire.started, ["recv", "send", "recv", "send", "recv", "send"]);
    }

    #[test]
    fn a_failure_cancels_the_rest() {
        let mut run = Run::new(exchange());
        let mut wire = Slow { fail: true, ..Slow::default() };
        run.start(binding(64));
        let error = run.poll(&mut wire, &mut Count::default()).unwrap_err();
        assert!(matches!(error, TransportError::PeerFailed { .. }));
        assert_eq!(wire.cancelled.len(), 1, "the failed one is gone, the other is cancelled");
        assert_eq!(run.unfinished(), 0);
    }

    /// Finishes nothing before it is told to, in order or not; notes what was started.
    #[derive(Default)]
    struct Queue {
        in_order: bool,
        started: Vec<&'static str>,
        finished: bool,
    }

    impl Queue {
        fn note(&mut self, what: &'static str) -> Result<Posted, TransportError> {
            self.started.push(what);
            Ok(Posted::Pending(Handle(self.started.len() as u64)))
        }
    }

    impl Device for Queue {
        fn copy(&mut self, _: Region, _: Region) -> Result<Posted, TransportError> {
            self.note("copy")
        }
        fn reduce(
            &mut self,
            _: &Reduction,
            _: Region,
            _: Region,
            _: Region,
            _: usize,
        ) -> Result<Posted, TransportError> {
            self.note("reduce")
        }
        fn in_order(&self) -> bool {
            self.in_order
        }
        fn group(&mut self, _: GroupCall, _: Region, _: Region) -> Result<Posted, TransportError> {
            self.note("group")
        }
        fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
            Ok(self.finished)
        }
    }

    #[test]
    fn a_device_in_order_gets_what_follows_at_once_but_nothing_behind_the_library() {
        let mut b = Builder::new(false);
        let t = b.scratch(8);
        let (input, output) = (Span::new(Buffer::Input, 0, 8), Span::new(Buffer::Output, 0, 8));
        b.copy(input, t);
        b.reduce(input, t, output);
        b.group(GroupCollective::Allgather, 0, output.part(0, 4), output);
        b.group(GroupCollective::Reduce, 0, input, t);
        b.reduce(output, t, output);
        b.send(Rank(1), output);
        let schedule = Arc::new(b.finish());
        for (in_order, first) in
            [(true, &["copy", "reduce", "group", "group"][..]), (false, &["copy"])]
        {
            let mut run = Run::new(Arc::clone(&schedule));
            let (mut wire, mut device) = (Slow::default(), Queue { in_order, ..Queue::default() });
            run.start(binding(64));
            assert!(!run.poll(&mut wire, &mut device).unwrap());
            assert_eq!(device.started, first);
            assert!(wire.started.is_empty(), "a message waits for the work before it");
            device.finished = true;
            let polls = (0..20).take_while(|_| !run.poll(&mut wire, &mut device).unwrap()).count();
            assert!(polls < 20, "never finished");
            assert_eq!(device.started, ["copy", "reduce", "group", "group", "reduce"]);
            assert_eq!(wire.started, ["send"]);
        }
    }

    #[test]
    fn an_empty_schedule_is_finished_at_once() {
        let mut run = Run::new(Arc::new(Builder::new(false).finish()));
        run.start(binding(0));
        assert!(run.poll(&mut Slow::default(), &mut Count::default()).unwrap());
    }
}
