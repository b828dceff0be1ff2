//! The schedules of all ranks, compactly.

use hetccl_core::{Rank, Schedule, Step, StepId};

/// A message: `from`, `to`, bytes, and the two steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) bytes: u64,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) send: u32,
    pub(super) recv: u32,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Sends a message, by its number.
    Send(u32),
    /// Receives a message, by its number.
    Recv(u32),
    /// Copies or reduces.
    Local { rank: u32, reduce: bool, bytes: u64 },
    /// Takes part in a collective of the vendor's library, by its number.
    Group(u32),
}

/// A collective of the vendor's library: each rank's step, and what each sends the next one on a ring.
#[derive(Clone, Debug)]
pub(super) struct Meeting {
    pub(super) steps: Vec<(u32, u32)>,
    pub(super) bytes: u64,
}

/// Schedules of all ranks that fit together.
#[derive(Debug, Default)]
pub struct Program {
    pub(super) ranks: usize,
    pub(super) ops: Vec<Op>,
    /// `successors[offsets[i]..offsets[i + 1]]` wait for step i.
    pub(super) offsets: Vec<u32>,
    pub(super) successors: Vec<u32>,
    pub(super) waits_for: Vec<u32>,
    pub(super) messages: Vec<Message>,
    pub(super) meetings: Vec<Meeting>,
}

/// One end of a message: sender, receiver, which of this pair's, step, bytes.
type End = (u32, u32, u32, u32, u64);

/// The ranks of library groups, and the meetings of each group so far, by their numbers in the program.
struct Groups<'a> {
    ranks: &'a [Vec<Rank>],
    meetings: Vec<Vec<u32>>,
}

/// One rank's schedule with numbers of its own.
struct Part {
    ops: Vec<(StepKind, u64)>,
    degrees: Vec<u32>,
    successors: Vec<u32>,
    waits_for: Box<[u32]>,
}

#[derive(Clone, Copy)]
enum StepKind {
    Send(u32),
    Recv(u32),
    Local(bool),
    Group,
}

impl Program {
    /// As [`with_libraries`](Program::with_libraries), without any.
    pub fn new(
        ranks: usize,
        element_bytes: usize,
        build: impl Fn(usize) -> Schedule + Sync,
    ) -> Program {
        Program::with_libraries(ranks, &[], element_bytes, build)
    }

    /// Builds every rank's schedule by `build`, several at a time, and joins them. Elements have `element_bytes` bytes; `libraries`
    /// has the ranks of each library group, ascending.
    ///
    /// # Panics
    /// When sends and receives do not match: the verifier lets no such algorithm pass.
    pub fn with_libraries(
        ranks: usize,
        libraries: &[Vec<Rank>],
        element_bytes: usize,
        build: impl Fn(usize) -> Schedule + Sync,
    ) -> Program {
        let mut groups = Groups { ranks: libraries, meetings: vec![Vec::new(); libraries.len()] };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut program = Program { ranks, offsets: vec![0], ..Program::default() };
        let (mut sends, mut recvs): (Vec<End>, Vec<End>) = (Vec::new(), Vec::new());
        // Few at a time, so that full schedules and their parts do not pile up.
        let batch = 64 * threads;
        for first in (0..ranks).step_by(batch) {
            let here: Vec<usize> = (first..ranks.min(first + batch)).collect();
            let build = &build;
            let parts: Vec<Part> = std::thread::scope(|scope| {
                let work = |ranks: &[usize]| -> Vec<Part> {
                    ranks.iter().map(|&rank| part(&build(rank), element_bytes)).collect()
                };
                let handles: Vec<_> = here
                    .chunks(here.len().div_ceil(threads))
                    .map(|ranks| scope.spawn(move || work(ranks)))
                    .collect();
                let join = |handle: std::thread::ScopedJoinHandle<Vec<Part>>| match handle.join() {
                    Ok(parts) => parts,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                handles.into_iter().flat_map(join).collect()
            });
            for (rank, part) in here.into_iter().zip(parts) {
                program.add(rank, &part, &mut sends, &mut recvs, &mut groups);
            }
        }
        program.connect(sends, recvs);
        program
    }

    /// Steps of all ranks.
    pub fn steps(&self) -> usize {
        self.ops.len()
    }

    /// Messages of all ranks.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    fn add(
        &mut self,
        rank: usize,
        part: &Part,
        sends: &mut Vec<End>,
        recvs: &mut Vec<End>,
        groups: &mut Groups<'_>,
    ) {
        let base = self.ops.len() as u32;
        let me = rank as u32;
        let mut met = 0;
        let mut counts = std::collections::HashMap::<(u32, bool), u32>::new();
        for (i, &(kind, bytes)) in part.ops.iter().enumerate() {
            let step = base + i as u32;
            let mut next = |peer, sending| {
                let count = counts.entry((peer, sending)).or_default();
                *count += 1;
                *count
            };
            let op = match kind {
                StepKind::Send(peer) => {
                    sends.push((me, peer, next(peer, true), step, bytes));
                    Op::Send(u32::MAX)
                }
                StepKind::Recv(peer) => {
                    recvs.push((peer, me, next(peer, false), step, bytes));
                    Op::Recv(u32::MAX)
                }
                StepKind::Local(reduce) => Op::Local { rank: me, reduce, bytes },
                StepKind::Group => {
                    met += 1;
                    Op::Group(self.join(groups, rank, met - 1, (step, bytes)))
                }
            };
            self.ops.push(op);
        }
        for &degree in &part.degrees {
            let last = self.offsets[self.offsets.len() - 1];
            self.offsets.push(last + degree);
        }
        self.successors.extend(part.successors.iter().map(|&step| base + step));
        self.waits_for.extend_from_slice(&part.waits_for);
    }

    /// Adds a rank's step to the group's collective with a number there; the collective's number in the program.
    fn join(
        &mut self,
        groups: &mut Groups<'_>,
        rank: usize,
        number: usize,
        (step, bytes): (u32, u64),
    ) -> u32 {
        let is_in = |ranks: &Vec<Rank>| ranks.binary_search(&Rank::from(rank)).is_ok();
        let group = groups.ranks.iter().position(is_in);
        let group = group.expect("only ranks of library groups have such steps");
        let size = groups.ranks[group].len() as u64;
        let known = &mut groups.meetings[group];
        if known.len() == number {
            known.push(self.meetings.len() as u32);
            self.meetings.push(Meeting { steps: Vec::new(), bytes: 0 });
        }
        let meeting = &mut self.meetings[known[number] as usize];
        meeting.steps.push((rank as u32, step));
        // The whole vector goes round, but for one part.
        meeting.bytes = meeting.bytes.max(bytes * (size - 1) / size);
        known[number]
    }

    fn connect(&mut self, mut sends: Vec<End>, mut recvs: Vec<End>) {
        assert_eq!(sends.len(), recvs.len(), "every message has a sender and a receiver");
        sends.sort_unstable();
        recvs.sort_unstable();
        self.messages.reserve_exact(sends.len());
        for (number, (send, recv)) in sends.into_iter().zip(recvs).enumerate() {
            let (from, to, count, send_step, bytes) = send;
            assert!(
                (from, to, count, bytes) == (recv.0, recv.1, recv.2, recv.4),
                "{send:?} {recv:?}"
            );
            let message = Message { bytes, from, to, send: send_step, recv: recv.3 };
            self.ops[message.send as usize] = Op::Send(number as u32);
            self.ops[message.recv as usize] = Op::Recv(number as u32);
            self.messages.push(message);
        }
    }
}

fn part(schedule: &Schedule, element_bytes: usize) -> Part {
    let bytes = |len: usize| (len * element_bytes) as u64;
    let ops = schedule.steps().iter().map(|step| match *step {
        Step::Send { peer, from, .. } => (StepKind::Send(peer.0), bytes(from.len)),
        Step::Recv { peer, into, .. } => (StepKind::Recv(peer.0), bytes(into.len)),
        Step::Copy { into, .. } => (StepKind::Local(false), bytes(into.len)),
        Step::Reduce { into, .. } => (StepKind::Local(true), bytes(into.len)),
        Step::Group { from, into, .. } => (StepKind::Group, bytes(from.len.max(into.len))),
    });
    let steps = schedule.steps().len() as u32;
    let successors = |step| schedule.successors(StepId(step));
    Part {
        ops: ops.collect(),
        degrees: (0..steps).map(|step| successors(step).len() as u32).collect(),
        successors: (0..steps).flat_map(|step| successors(step).iter().map(|s| s.0)).collect(),
        waits_for: schedule.waits_for().into(),
    }
}
