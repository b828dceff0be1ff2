//! The discrete events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hetccl_core::topology::Topology;

use super::machine::Machine;
use super::program::{Op, Program};
use super::{Picoseconds, transfer_ps};

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Virtual time until the last rank ended.
    pub makespan_ps: Picoseconds,
    /// Events that it took to find out.
    pub events: u64,
}

impl Timing {
    /// In microseconds.
    pub fn us(&self) -> f64 {
        self.makespan_ps as f64 / 1e6
    }
}

/// Nobody has come yet.
const NEVER: Picoseconds = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A message reaches the link that is so many on its way.
    Leg(u32, u8),
    /// A message is there.
    Arrival(u32),
    /// A step is over.
    Done(u32),
}

/// One run.
struct Run<'a> {
    /// `waits_for` counts down.
    program: Program,
    topology: &'a Topology,
    machine: Machine<'a>,
    now: Picoseconds,
    events: BinaryHeap<Reverse<(Picoseconds, u64, What)>>,
    count: u64,
    /// When each link is free again.
    free: Vec<Picoseconds>,
    /// When each rank may start its next message or kernel, and take its next arrival.
    starting: Vec<Picoseconds>,
    taking: Vec<Picoseconds>,
    /// When the first of a message's two sides was ready; later, when all its bytes are past the link before.
    side: Vec<Picoseconds>,
    /// An eager message has arrived before its receive; or its receive waits.
    early: Vec<bool>,
    /// How many ranks have come to each of the libraries' collectives.
    come: Vec<u32>,
    done: usize,
    last: Picoseconds,
}

/// Plays a program. `tick` is called now and then with the steps done so far.
///
/// # Panics
/// When steps wait for each other for ever: the verifier lets no such algorithm pass.
pub fn run(program: Program, topology: &Topology, mut tick: impl FnMut(usize)) -> Timing {
    assert_eq!(program.ranks, topology.len(), "a schedule for each rank");
    let machine = Machine::new(topology);
    let mut run = Run {
        topology,
        free: vec![0; machine.links()],
        machine,
        now: 0,
        events: BinaryHeap::new(),
        count: 0,
        starting: vec![0; program.ranks],
        taking: vec![0; program.ranks],
        side: vec![NEVER; program.messages.len()],
        early: vec![false; program.messages.len()],
        come: vec![0; program.meetings.len()],
        done: 0,
        last: 0,
        program,
    };
    let steps = run.program.ops.len();
    let free: Vec<u32> =
        (0..steps as u32).filter(|&step| run.program.waits_for[step as usize] == 0).collect();
    for step in free {
        run.begin(step);
    }
    while let Some(Reverse((time, _, what))) = run.events.pop() {
        run.now = time;
        if run.count.is_multiple_of(1 << 16) {
            tick(run.done);
        }
        match what {
            What::Leg(message, leg) => run.leg(message, leg),
            What::Arrival(message) => run.arrive(message),
            What::Done(step) => run.finish(step),
        }
    }
    assert_eq!(run.done, steps, "steps wait for ever");
    Timing { makespan_ps: run.last, events: run.count }
}

impl Run<'_> {
    fn at(&mut self, time: Picoseconds, what: What) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, what)));
    }

    fn overhead_ps(&self) -> Picoseconds {
        u64::from(self.topology.network.overhead_ns) * 1000
    }

    fn eager(&self, message: u32) -> bool {
        self.program.bytes_of(message) <= u64::from(self.topology.network.eager_bytes)
    }

    /// Takes the rank's time for a new message or kernel; when that is done.
    fn start(&mut self, rank: u32) -> Picoseconds {
        let begin = self.now.max(self.starting[rank as usize]) + self.overhead_ps();
        self.starting[rank as usize] = begin;
        begin
    }

    fn begin(&mut self, step: u32) {
        match self.program.ops[step as usize] {
            op @ (Op::Copy(elements) | Op::Reduce(elements)) => {
                let rank = self.program.rank_of(step);
                let reduce = matches!(op, Op::Reduce(_));
                let bytes = self.program.bytes(elements);
                let device = *self.topology.device(rank as usize);
                let rate = if reduce { device.reduce_mb_s } else { device.copy_mb_s };
                let ready = self.start(rank) + u64::from(device.launch_ns) * 1000;
                let memory = self.machine.memory(rank as usize) as usize;
                let end = ready.max(self.free[memory]) + transfer_ps(bytes, rate);
                self.free[memory] = end;
                self.at(end, What::Done(step));
            }
            Op::Send(message) => {
                let ready = self.start(self.program.ends(message).0);
                if self.eager(message) {
                    self.at(ready, What::Done(step));
                    self.depart(message, ready);
                } else {
                    // The request reaches the receiver, and the answer comes back.
                    self.meet(message, ready, true);
                }
            }
            Op::Group(number) => {
                let members = self.program.meetings[number as usize].steps.len();
                self.come[number as usize] += 1;
                if self.come[number as usize] as usize == members {
                    self.ring(number);
                }
            }
            Op::Recv(message) => {
                if !self.eager(message) {
                    self.meet(message, self.now, false);
                } else if std::mem::replace(&mut self.early[message as usize], true) {
                    self.take(message);
                }
            }
        }
    }

    /// All have come to a collective of a vendor's library: everybody sends along a ring, piece by piece, so that each link is busy
    /// with all of it once and the latencies of the steps add up.
    fn ring(&mut self, number: u32) {
        let meeting = &self.program.meetings[number as usize];
        let bytes = meeting.bytes;
        let ranks: Vec<usize> = meeting.steps.iter().map(|&(rank, _)| rank as usize).collect();
        let mut ready = self.now;
        for &rank in &ranks {
            let launch = u64::from(self.topology.device(rank).launch_ns) * 1000;
            ready = ready.max(self.start(rank as u32) + launch);
        }
        let (mut end, mut latency) = (ready, 0);
        for (i, &from) in ranks.iter().enumerate() {
            let way = self.machine.way(from, ranks[(i + 1) % ranks.len()]);
            latency = latency.max(u64::from(way.latency_ns) * 1000);
            for leg in way.legs() {
                let free = &mut self.free[leg.link as usize];
                *free = ready.max(*free) + transfer_ps(bytes, leg.mb_s);
                end = end.max(*free);
            }
        }
        end += latency * (ranks.len() as u64 - 1);
        let meeting = std::mem::take(&mut self.program.meetings[number as usize].steps);
        for (_, step) in meeting {
            self.at(end, What::Done(step));
        }
    }

    /// One side of a message that needs both is ready.
    fn meet(&mut self, message: u32, ready: Picoseconds, sender: bool) {
        let (from, to) = self.program.ends(message);
        let latency = u64::from(self.machine.way(from as usize, to as usize).latency_ns) * 1000;
        let at_receiver = if sender { ready + latency } else { ready };
        let other = self.side[message as usize];
        if other == NEVER {
            self.side[message as usize] = at_receiver;
        } else {
            self.depart(message, at_receiver.max(other) + latency);
        }
    }

    fn depart(&mut self, message: u32, time: Picoseconds) {
        self.side[message as usize] = time;
        self.at(time, What::Leg(message, 0));
    }

    /// A message's first byte is at a link: it waits for its turn there.
    fn leg(&mut self, message: u32, leg: u8) {
        let (from, to) = self.program.ends(message);
        let way = self.machine.way(from as usize, to as usize);
        let here = way.legs()[usize::from(leg)];
        let begin = self.now.max(self.free[here.link as usize]);
        let busy = begin + transfer_ps(self.program.bytes_of(message), here.mb_s);
        self.free[here.link as usize] = busy;
        let end = busy.max(self.side[message as usize]);
        self.side[message as usize] = end;
        if usize::from(leg) + 1 < way.legs().len() {
            self.at(begin, What::Leg(message, leg + 1));
        } else {
            self.at(end + u64::from(way.latency_ns) * 1000, What::Arrival(message));
        }
    }

    fn arrive(&mut self, message: u32) {
        if !self.eager(message) {
            self.finish(self.program.messages[message as usize].send);
            self.take(message);
        } else if std::mem::replace(&mut self.early[message as usize], true) {
            self.take(message);
        }
    }

    /// The receiver deals with a message that is there and wanted.
    fn take(&mut self, message: u32) {
        let (_, to) = self.program.ends(message);
        let recv = self.program.messages[message as usize].recv;
        let taking = &mut self.taking[to as usize];
        let end = self.now.max(*taking) + u64::from(self.topology.network.overhead_ns) * 1000;
        *taking = end;
        self.at(end, What::Done(recv));
    }

    fn finish(&mut self, step: u32) {
        self.done += 1;
        self.last = self.last.max(self.now);
        let program = &self.program;
        let range = program.offsets[step as usize]..program.offsets[step as usize + 1];
        for at in range {
            let next = self.program.successors[at as usize];
            let waits = &mut self.program.waits_for[next as usize];
            *waits -= 1;
            if *waits == 0 {
                self.begin(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hetccl_core::{Buffer, Builder, Rank, Schedule, Span};

    use super::*;
    use crate::cluster::Cluster;

    fn testbed() -> Topology {
        let text = include_str!("../../../clusters/hetccl-paper.toml");
        Cluster::parse(text, std::path::Path::new("testbed")).unwrap().topology
    }

    fn time(topology: &Topology, build: impl Fn(usize, &mut Builder) + Sync) -> f64 {
        let program = Program::new(topology.len(), 1, |rank| -> Schedule {
            let mut b = Builder::new(false);
            build(rank, &mut b);
            b.finish()
        });
        run(program, topology, |_| ()).us()
    }

    const N: usize = 12_200_000;

    fn message(from: &[usize], to: &[usize]) -> impl Fn(usize, &mut Builder) + Sync {
        let (from, to) = (from.to_vec(), to.to_vec());
        move |rank, b| {
            for (&from, &to) in from.iter().zip(&to) {
                if rank == from {
                    b.send(Rank::from(to), Span::new(Buffer::Input, 0, N));
                } else if rank == to {
                    b.recv(Rank::from(from), Span::new(Buffer::Output, 0, N));
                }
            }
        }
    }

    #[test]
    fn a_message_takes_latencies_overheads_and_its_slowest_link() {
        // A request, an answer, the message: three latencies of 2 us; twice 0.4 us; 1,000 us at 12.2 GB/s.
        let us = time(&testbed(), message(&[0], &[8]));
        assert!((us - 1006.8).abs() < 0.1, "{us}");
    }

    #[test]
    fn cards_carry_one_message_at_a_time_on_both_sides() {
        // Two senders of one node share its card; two receivers' nodes have cards twice as fast.
        let out = time(&testbed(), message(&[0, 1], &[8, 12]));
        assert!((out - 2006.8).abs() < 1.0, "{out}");
        // Two nodes' cards into one of twice the rate: no wait; into one GPU of 25 GB/s: little.
        let into = time(&testbed(), message(&[0, 4], &[8, 9]));
        assert!((into - 1008.0).abs() < 12.0, "{into}");
        // Two fast cards into one slow one.
        let slow = time(&testbed(), message(&[8, 12], &[0, 1]));
        assert!((slow - 2006.8).abs() < 1.0, "{slow}");
        // Both directions at once.
        let both = time(&testbed(), message(&[0, 8], &[8, 0]));
        assert!((both - 1006.8).abs() < 1.0, "{both}");
    }
}
