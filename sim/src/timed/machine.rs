//! The links of a machine, and which of them a message uses.

use hetccl_core::topology::{Route, Topology, Vendor};

/// A link in one direction, or a device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leg {
    /// Its number.
    pub(super) link: u32,
    /// Its rate for this message, in MB/s.
    pub(super) mb_s: u32,
}

/// The way of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    legs: [Leg; 6],
    len: u8,
    /// Time that passes besides the legs.
    pub(super) latency_ns: u32,
}

impl Way {
    pub(super) fn legs(&self) -> &[Leg] {
        &self.legs[..usize::from(self.len)]
    }

    fn push(&mut self, link: u32, mb_s: u32) {
        self.legs[usize::from(self.len)] = Leg { link, mb_s };
        self.len += 1;
    }
}

const PCIE_OUT: u32 = 0;
const PCIE_IN: u32 = 1;
const FABRIC_OUT: u32 = 2;
const FABRIC_IN: u32 = 3;
const MEMORY: u32 = 4;
const PER_DEVICE: u32 = 5;

/// Numbers for everything that carries one thing at a time.
pub(super) struct Machine<'a> {
    topology: &'a Topology,
    /// Each node's first number: its host memory, then its cards (out, in), then its devices.
    first: Vec<u32>,
    links: u32,
}

impl<'a> Machine<'a> {
    pub(super) fn new(topology: &'a Topology) -> Machine<'a> {
        let mut links = 0;
        let first = topology
            .nodes
            .iter()
            .map(|&kind| {
                let kind = &topology.kinds[usize::from(kind)];
                let here = links;
                links += 1 + 2 * kind.nics.len() as u32 + PER_DEVICE * kind.devices.len() as u32;
                here
            })
            .collect();
        Machine { topology, first, links }
    }

    pub(super) fn links(&self) -> usize {
        self.links as usize
    }

    /// A rank's device's memory.
    pub(super) fn memory(&self, rank: usize) -> u32 {
        self.device(rank) + MEMORY
    }

    /// The way of a message.
    pub(super) fn way(&self, from: usize, to: usize) -> Way {
        let t = self.topology;
        let (a, b) = (t.device(from), t.device(to));
        let (here, there) = (self.device(from), self.device(to));
        let mut way = Way {
            legs: [Leg { link: 0, mb_s: 0 }; 6],
            len: 0,
            latency_ns: t.kind(from).latency_ns,
        };
        match t.route(from, to) {
            Route::Device => way.push(here + MEMORY, a.copy_mb_s),
            Route::Fabric => {
                way.push(here + FABRIC_OUT, a.fabric_mb_s);
                way.push(there + FABRIC_IN, b.fabric_mb_s);
            }
            Route::Peer => {
                way.push(here + PCIE_OUT, a.pcie_mb_s);
                way.push(there + PCIE_IN, b.pcie_mb_s);
            }
            Route::Staged => {
                way.push(here + PCIE_OUT, a.pcie_mb_s);
                self.host(&mut way, from);
                way.push(there + PCIE_IN, b.pcie_mb_s);
                way.latency_ns += a.launch_ns + b.launch_ns;
            }
            Route::Network => {
                way.latency_ns = t.network.latency_ns;
                way.push(here + PCIE_OUT, a.pcie_mb_s);
                if staged(a) {
                    self.host(&mut way, from);
                    way.latency_ns += a.launch_ns;
                }
                way.push(self.nic(from), t.nic_mb_s(from));
                way.push(self.nic(to) + 1, t.nic_mb_s(to));
                if staged(b) {
                    self.host(&mut way, to);
                    way.latency_ns += b.launch_ns;
                }
                way.push(there + PCIE_IN, b.pcie_mb_s);
            }
        }
        way
    }

    /// Host memory, which what is staged goes through twice.
    fn host(&self, way: &mut Way, rank: usize) {
        let node = self.topology.places[rank].node as usize;
        way.push(self.first[node], self.topology.kind(rank).host_mb_s / 2);
    }

    fn nic(&self, rank: usize) -> u32 {
        let node = self.topology.places[rank].node as usize;
        self.first[node] + 1 + 2 * u32::from(self.topology.device(rank).nic)
    }

    fn device(&self, rank: usize) -> u32 {
        let place = self.topology.places[rank];
        let cards = 2 * self.topology.kind(rank).nics.len() as u32;
        self.first[place.node as usize] + 1 + cards + PER_DEVICE * u32::from(place.device)
    }
}

fn staged(device: &hetccl_core::topology::Device) -> bool {
    !device.gpu_direct && device.vendor != Vendor::Host
}
