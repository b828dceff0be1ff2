//! Messages between ranks in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use hetccl_core::MessageTag;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::simulation::Config;

/// A message's direction and tag: what a receive matches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sequence: u16,
    pub(crate) step: u16,
}

impl Lane {
    pub(crate) fn new(from: usize, to: usize, tag: MessageTag) -> Lane {
        Lane { from, to, sequence: tag.sequence, step: tag.step }
    }
}

/// What wakes whom when. Ordered by time, then by a random number, then by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time_ns: u64,
    tie: u32,
    age: u64,
    what: Happening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A message has reached its receiver.
    Arrival(Lane),
    /// A rank gets to run.
    Turn(usize),
    /// A rank is lost.
    Loss(usize),
    /// Those that still wait look at the others.
    Look,
}

/// The wires and the clock.
pub(crate) struct Network {
    config: Config,
    random: SmallRng,
    events: BinaryHeap<Reverse<Event>>,
    age: u64,
    now_ns: u64,
    /// Messages on their way, per lane in order.
    flying: HashMap<Lane, VecDeque<Vec<u8>>>,
    /// Messages that have arrived and were not received yet.
    arrived: HashMap<Lane, VecDeque<Vec<u8>>>,
    /// When a lane's last message arrives: later ones come after it.
    lane_free_ns: HashMap<Lane, u64>,
    /// When a sender's link is free.
    link_free_ns: Vec<u64>,
    lost: HashSet<usize>,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Network {
    pub(crate) fn new(config: Config, random: SmallRng, processes: usize) -> Network {
        Network {
            config,
            random,
            events: BinaryHeap::new(),
            age: 0,
            now_ns: 0,
            flying: HashMap::new(),
            arrived: HashMap::new(),
            lane_free_ns: HashMap::new(),
            link_free_ns: vec![0; processes],
            lost: HashSet::new(),
            messages: 0,
            bytes: 0,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn schedule(&mut self, delay_ns: u64, what: Happening) {
        self.age += 1;
        let tie = self.random.random();
        let time_ns = self.now_ns + delay_ns;
        self.events.push(Reverse(Event { time_ns, tie, age: self.age, what }));
    }

    /// A random extra delay.
    pub(crate) fn jitter_ns(&mut self) -> u64 {
        match self.config.jitter_ns {
            0 => 0,
            most => self.random.random_range(0..=most),
        }
    }

    /// Sends a message that leaves after `busy_ns` of work of the sender's. The time until the sender's buffer is free.
    pub(crate) fn send(&mut self, lane: Lane, data: Vec<u8>, busy_ns: u64) -> u64 {
        let transfer = (data.len() as f64 / self.config.bytes_per_ns) as u64;
        let begin = (self.now_ns + busy_ns).max(self.link_free_ns[lane.from]);
        let end = begin + transfer;
        self.link_free_ns[lane.from] = end;
        self.messages += 1;
        self.bytes += data.len();
        if !self.lost.contains(&lane.to) {
            // Lanes overtake each other; within a lane the order stays.
            let after = self.lane_free_ns.get(&lane).copied().unwrap_or(0);
            let arrival = (end + self.config.latency_ns + self.jitter_ns()).max(after);
            self.lane_free_ns.insert(lane, arrival);
            let copies = if self.config.duplicates && self.random.random() { 2 } else { 1 };
            for _ in 0..copies {
                self.flying.entry(lane).or_default().push_back(data.clone());
                self.schedule(arrival - self.now_ns, Happening::Arrival(lane));
            }
        }
        end - self.now_ns
    }

    /// The next message of a lane, if it has arrived.
    pub(crate) fn take(&mut self, lane: Lane) -> Option<Vec<u8>> {
        let queue = self.arrived.get_mut(&lane)?;
        let data = queue.pop_front();
        if queue.is_empty() {
            self.arrived.remove(&lane);
        }
        data
    }

    pub(crate) fn is_lost(&self, process: usize) -> bool {
        self.lost.contains(&process)
    }

    /// Moves the clock to the next event. `None` when nothing will ever happen again.
    pub(crate) fn next(&mut self) -> Option<Happening> {
        let Reverse(event) = self.events.pop()?;
        self.now_ns = event.time_ns;
        match event.what {
            Happening::Arrival(lane) => {
                let data = self.flying.get_mut(&lane).and_then(VecDeque::pop_front);
                if let Some(data) = data
                    && !self.lost.contains(&lane.to)
                {
                    self.arrived.entry(lane).or_default().push_back(data);
                }
            }
            Happening::Loss(process) => {
                self.lost.insert(process);
            }
            Happening::Turn(_) | Happening::Look => {}
        }
        Some(event.what)
    }

    /// Messages that nobody received, those to or from lost ranks aside.
    pub(crate) fn left_over(&self) -> Vec<Lane> {
        let lost = |lane: &Lane| self.lost.contains(&lane.from) || self.lost.contains(&lane.to);
        self.arrived.keys().filter(|lane| !lost(lane)).copied().collect()
    }
}
