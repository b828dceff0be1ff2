//! One rank: its run, its memory, and the transport and device that the engine sees.

use std::cell::{Cell, RefCell};

use hetccl_core::{
    Device, GroupCall, Handle, MessageTag, Posted, Rank, Reduction, Region, Run, Transport,
    TransportError,
};

use crate::groups::{Groups, Queue};
use crate::memory::{Arithmetic, Memory};
use crate::network::{Happening, Lane, Network};
use crate::simulation::{Config, LOOK_NS};

/// What a rank waits for.
enum Waiting {
    /// Its buffer is free at this time.
    Send {
        free_ns: u64,
        peer: usize,
        rank: Rank,
    },
    Recv {
        lane: Lane,
        into: Region,
        rank: Rank,
    },
}

/// A rank in the simulation.
pub(crate) struct SimRank {
    pub(crate) process: usize,
    pub(crate) run: Run,
    pub(crate) memory: Memory,
    pub(crate) ended: Option<Result<(), TransportError>>,
    pub(crate) ended_ns: u64,
    waiting: Vec<Option<Waiting>>,
    /// The process behind each of the engine's ranks.
    peers: Vec<usize>,
    /// Until when the rank copies and reduces.
    busy_until_ns: u64,
    life: Life,
    /// What the vendor's library has been asked for.
    library: Queue,
}

/// Steps that a rank has begun, and may begin before it is lost.
struct Life {
    begun: Cell<usize>,
    most: Option<usize>,
}

impl Life {
    /// Counts a step; the process's end where it was to come before it.
    fn step(&self) -> Result<(), TransportError> {
        if self.is_over() {
            let reason = "the process is lost".to_owned();
            return Err(TransportError::Failed { operation: "simulation", native_code: 0, reason });
        }
        self.begun.set(self.begun.get() + 1);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.most == Some(self.begun.get())
    }
}

impl SimRank {
    pub(crate) fn new(
        process: usize,
        run: Run,
        memory: Memory,
        peers: Vec<usize>,
        most_steps: Option<usize>,
        library: Queue,
    ) -> SimRank {
        SimRank {
            process,
            run,
            memory,
            ended: None,
            ended_ns: 0,
            waiting: Vec::new(),
            peers,
            busy_until_ns: 0,
            life: Life { begun: Cell::new(0), most: most_steps },
            library,
        }
    }

    /// Lets the engine do what it can. The time after which it wants to be asked again, when it knows one.
    pub(crate) fn turn(
        &mut self,
        network: &mut Network,
        config: &Config,
        arithmetic: Arithmetic,
        groups: &mut Groups,
    ) -> Option<u64> {
        if self.ended.is_some() || network.is_lost(self.process) {
            return None;
        }
        let lost = self.library.members().find(|&member| network.is_lost(member));
        let SimRank { run, memory, waiting, peers, busy_until_ns, process, library, life, .. } =
            self;
        // The device shares the rank's memory and time with the port.
        let (cell, busy) =
            (RefCell::new(memory), Cell::new((*busy_until_ns).max(network.now_ns())));
        let mut port = Port {
            network,
            waiting,
            memory: &cell,
            peers,
            process: *process,
            busy_until_ns: &busy,
            life,
        };
        let mut device = SimDevice {
            memory: &cell,
            arithmetic,
            busy_until_ns: &busy,
            ns_per_byte: config.reduce_ns_per_byte,
            life,
            library,
            groups,
            lost,
        };
        let polled = run.poll(&mut port, &mut device);
        for member in groups.take_wake() {
            let jitter = network.jitter_ns();
            network.schedule(config.latency_ns + jitter, Happening::Turn(member));
        }
        *busy_until_ns = busy.get();
        let now = network.now_ns();
        match polled {
            Ok(false) => self.next_wish(now),
            Ok(true) => {
                self.end(Ok(()));
                None
            }
            Err(error) => {
                self.ended_ns = now;
                if self.life.is_over() {
                    network.schedule(0, Happening::Loss(self.process));
                    network.schedule(LOOK_NS, Happening::Look);
                }
                self.end(Err(error));
                None
            }
        }
    }

    /// Ends a rank that still waits, as it sees that another is lost.
    pub(crate) fn give_up(&mut self, network: &Network) {
        if self.ended.is_none() {
            let reason = "another rank is lost".to_owned();
            self.ended_ns = network.now_ns();
            self.end(Err(TransportError::GivenUp { class: 0, reason }));
        }
    }

    fn end(&mut self, result: Result<(), TransportError>) {
        self.ended_ns = self.ended_ns.max(self.busy_until_ns);
        self.ended = Some(result);
    }

    /// The earliest time at which a send is over.
    fn next_wish(&self, now: u64) -> Option<u64> {
        let free = self.waiting.iter().flatten().filter_map(|waiting| match waiting {
            Waiting::Send { free_ns, .. } => Some(free_ns.saturating_sub(now).max(1)),
            Waiting::Recv { .. } => None,
        });
        free.min()
    }
}

struct Port<'a, 'm> {
    network: &'a mut Network,
    waiting: &'a mut Vec<Option<Waiting>>,
    memory: &'a RefCell<&'m mut Memory>,
    peers: &'a [usize],
    process: usize,
    /// Until when the rank copies and reduces; what it sends leaves afterwards.
    busy_until_ns: &'a Cell<u64>,
    life: &'a Life,
}

impl Port<'_, '_> {
    fn keep(&mut self, waiting: Waiting) -> Posted {
        self.waiting.push(Some(waiting));
        Posted::Pending(Handle((self.waiting.len() - 1) as u64))
    }

    fn gone(peer: Rank) -> TransportError {
        TransportError::PeerFailed { peer, reason: "lost in the simulation".into() }
    }
}

impl Transport for Port<'_, '_> {
    fn send(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        from: Region,
    ) -> Result<Posted, TransportError> {
        self.life.step()?;
        let to = self.peers[peer.index()];
        if self.network.is_lost(to) {
            return Err(Self::gone(peer));
        }
        let data = self.memory.borrow().read(from).to_vec();
        let busy = self.busy_until_ns.get().saturating_sub(self.network.now_ns());
        let lane = Lane::new(self.process, to, tag);
        let free_ns = self.network.now_ns() + self.network.send(lane, data, busy);
        Ok(self.keep(Waiting::Send { free_ns, peer: to, rank: peer }))
    }

    fn recv(
        &mut self,
        peer: Rank,
        tag: MessageTag,
        into: Region,
    ) -> Result<Posted, TransportError> {
        self.life.step()?;
        let lane = Lane::new(self.peers[peer.index()], self.process, tag);
        Ok(self.keep(Waiting::Recv { lane, into, rank: peer }))
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        let slot = &mut self.waiting[handle.0 as usize];
        let outcome = match slot {
            None => Ok(true),
            Some(Waiting::Send { free_ns, peer, rank }) => {
                if *free_ns <= self.network.now_ns() {
                    Ok(true)
                } else if self.network.is_lost(*peer) {
                    Err(Self::gone(*rank))
                } else {
                    Ok(false)
                }
            }
            Some(Waiting::Recv { lane, into, rank }) => match self.network.take(*lane) {
                Some(data) if data.len() > into.len_bytes => Err(TransportError::Truncated {
                    peer: *rank,
                    sent_bytes: data.len(),
                    room_bytes: into.len_bytes,
                }),
                Some(data) => {
                    self.memory.borrow_mut().write(*into, &data);
                    Ok(true)
                }
                None if self.network.is_lost(lane.from) => Err(Self::gone(*rank)),
                None => Ok(false),
            },
        };
        if !matches!(outcome, Ok(false)) {
            *slot = None;
        }
        outcome
    }

    fn cancel(&mut self, handle: Handle) {
        self.waiting[handle.0 as usize] = None;
    }
}

struct SimDevice<'a, 'm> {
    memory: &'a RefCell<&'m mut Memory>,
    arithmetic: Arithmetic,
    busy_until_ns: &'a Cell<u64>,
    ns_per_byte: f64,
    life: &'a Life,
    library: &'a mut Queue,
    groups: &'a mut Groups,
    /// A process of the group that is lost.
    lost: Option<usize>,
}

impl SimDevice<'_, '_> {
    fn spend(&mut self, bytes: usize) {
        let spent = (bytes as f64 * self.ns_per_byte) as u64;
        self.busy_until_ns.set(self.busy_until_ns.get() + spent);
    }
}

impl Device for SimDevice<'_, '_> {
    fn copy(&mut self, from: Region, into: Region) -> Result<Posted, TransportError> {
        self.life.step()?;
        let data = self.memory.borrow().read(from).to_vec();
        self.memory.borrow_mut().write(into, &data);
        Ok(Posted::Done)
    }

    fn reduce(
        &mut self,
        _: &Reduction,
        left: Region,
        right: Region,
        into: Region,
        _: usize,
    ) -> Result<Posted, TransportError> {
        self.life.step()?;
        self.memory.borrow_mut().reduce(self.arithmetic, left, right, into);
        self.spend(into.len_bytes);
        Ok(Posted::Done)
    }

    fn in_order(&self) -> bool {
        true
    }

    fn group(
        &mut self,
        call: GroupCall,
        from: Region,
        into: Region,
    ) -> Result<Posted, TransportError> {
        let number = self.library.push(call, from, into);
        let number = number.ok_or_else(|| call.refused("the rank has no library group"))?;
        Ok(Posted::Pending(Handle(number as u64)))
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        let number = handle.0 as usize;
        let memory = &mut self.memory.borrow_mut();
        if self.library.has_ended(number, self.groups, memory, self.arithmetic) {
            return Ok(true);
        }
        match self.lost {
            Some(lost) => Err(Port::gone(Rank::from(lost))),
            None => Ok(false),
        }
    }
}
