//! The schedules of all ranks, compactly.

use std::collections::HashMap;

use hetccl_core::{Rank, Schedule, Step, StepId};

/// A message: which pair's, its length, and its two steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pair: u32,
    elements: u32,
    pub(super) send: u32,
    pub(super) recv: u32,
}

/// What a step does. Lengths are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Sends a message, by its number.
    Send(u32),
    /// Receives a message, by its number.
    Recv(u32),
    /// Copies.
    Copy(u32),
    /// Reduces.
    Reduce(u32),
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
    element_bytes: u64,
    /// Each rank's first step.
    first: Vec<u32>,
    pub(super) ops: Vec<Op>,
    /// `successors[offsets[i]..offsets[i + 1]]` wait for step i.
    pub(super) offsets: Vec<u32>,
    pub(super) successors: Vec<u32>,
    pub(super) waits_for: Vec<u32>,
    pub(super) messages: Vec<Message>,
    /// Sender and receiver of each pair that has messages.
    pairs: Vec<(u32, u32)>,
    pub(super) meetings: Vec<Meeting>,
}

/// A step that has not been seen yet.
const UNKNOWN: u32 = u32::MAX;

/// The messages from one rank to another: they follow each other in the program from `first` on.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    pair: u32,
    first: u32,
    len: u32,
}

/// The stretches by sender and receiver.
type Stretches = HashMap<(u32, u32), Stretch>;

/// The ranks of library groups, and the meetings of each group so far, by their numbers in the program.
struct Groups<'a> {
    ranks: &'a [Vec<Rank>],
    meetings: Vec<Vec<u32>>,
}

/// One rank's schedule with numbers of its own.
struct Part {
    ops: Vec<(StepKind, u32)>,
    degrees: Vec<u32>,
    successors: Vec<u32>,
    waits_for: Box<[u32]>,
}

#[derive(Clone, Copy)]
enum StepKind {
    Send(u32),
    Recv(u32),
    Copy,
    Reduce,
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
        let mut program = Program {
            ranks,
            element_bytes: element_bytes as u64,
            offsets: vec![0],
            ..Program::default()
        };
        let mut stretches = Stretches::new();
        // Few at a time, so that full schedules and their parts do not pile up.
        let batch = 64 * threads;
        for first in (0..ranks).step_by(batch) {
            let here: Vec<usize> = (first..ranks.min(first + batch)).collect();
            let build = &build;
            let parts: Vec<Part> = std::thread::scope(|scope| {
                let work = |ranks: &[usize]| -> Vec<Part> {
                    ranks.iter().map(|&rank| part(&build(rank))).collect()
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
                program.add(rank, &part, &mut stretches, &mut groups);
            }
        }
        let matched = |m: &Message| m.send != UNKNOWN && m.recv != UNKNOWN;
        assert!(program.messages.iter().all(matched), "every message has a sender and a receiver");
        program
    }

    /// Sender and receiver of a message.
    pub(super) fn ends(&self, message: u32) -> (u32, u32) {
        self.pairs[self.messages[message as usize].pair as usize]
    }

    /// Bytes of a message.
    pub(super) fn bytes_of(&self, message: u32) -> u64 {
        self.bytes(self.messages[message as usize].elements)
    }

    /// Bytes of so many elements.
    pub(super) fn bytes(&self, elements: u32) -> u64 {
        u64::from(elements) * self.element_bytes
    }

    /// The rank that a step belongs to.
    pub(super) fn rank_of(&self, step: u32) -> u32 {
        self.first.partition_point(|&first| first <= step) as u32 - 1
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
        stretches: &mut Stretches,
        groups: &mut Groups<'_>,
    ) {
        let base = self.ops.len() as u32;
        self.first.push(base);
        let mut next = self.places(rank as u32, part, stretches);
        let mut met = 0;
        for (i, &(kind, elements)) in part.ops.iter().enumerate() {
            let step = base + i as u32;
            let mut message = |key: (u32, bool)| {
                let number = next.get_mut(&key).expect("every peer has a stretch");
                *number += 1;
                *number - 1
            };
            let op = match kind {
                StepKind::Send(peer) => {
                    let number = message((peer, true));
                    self.meet(number, elements).send = step;
                    Op::Send(number)
                }
                StepKind::Recv(peer) => {
                    let number = message((peer, false));
                    self.meet(number, elements).recv = step;
                    Op::Recv(number)
                }
                StepKind::Copy => Op::Copy(elements),
                StepKind::Reduce => Op::Reduce(elements),
                StepKind::Group => {
                    met += 1;
                    let bytes = self.bytes(elements);
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

    /// The number of the first message to and from each peer. Whichever end of a pair comes first makes room for its messages.
    fn places(
        &mut self,
        me: u32,
        part: &Part,
        stretches: &mut Stretches,
    ) -> HashMap<(u32, bool), u32> {
        let mut counts = HashMap::<(u32, bool), u32>::new();
        for &(kind, _) in &part.ops {
            match kind {
                StepKind::Send(peer) => *counts.entry((peer, true)).or_default() += 1,
                StepKind::Recv(peer) => *counts.entry((peer, false)).or_default() += 1,
                StepKind::Copy | StepKind::Reduce | StepKind::Group => {}
            }
        }
        for (&(peer, sends), count) in &mut counts {
            let ends = if sends { (me, peer) } else { (peer, me) };
            let stretch = *stretches.entry(ends).or_insert_with(|| {
                let (pair, first) = (self.pairs.len() as u32, self.messages.len() as u32);
                self.pairs.push(ends);
                let unknown = Message { pair, elements: UNKNOWN, send: UNKNOWN, recv: UNKNOWN };
                self.messages.resize(self.messages.len() + *count as usize, unknown);
                Stretch { pair, first, len: *count }
            });
            assert_eq!(stretch.len, *count, "as many messages are sent as received, {ends:?}");
            debug_assert_eq!(self.pairs[stretch.pair as usize], ends);
            *count = stretch.first;
        }
        counts
    }

    /// One end of a message, which has this length at both.
    fn meet(&mut self, number: u32, elements: u32) -> &mut Message {
        let message = &mut self.messages[number as usize];
        if message.elements == UNKNOWN {
            message.elements = elements;
        }
        assert_eq!(message.elements, elements, "a message has one length");
        message
    }
}

fn part(schedule: &Schedule) -> Part {
    let elements = |len: usize| u32::try_from(len).expect("fewer than 2^32 elements in a step");
    let ops = schedule.steps().iter().map(|step| match *step {
        Step::Send { peer, from, .. } => (StepKind::Send(peer.0), elements(from.len)),
        Step::Recv { peer, into, .. } => (StepKind::Recv(peer.0), elements(into.len)),
        Step::Copy { into, .. } => (StepKind::Copy, elements(into.len)),
        Step::Reduce { into, .. } => (StepKind::Reduce, elements(into.len)),
        Step::Group { from, into, .. } => (StepKind::Group, elements(from.len.max(into.len))),
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
