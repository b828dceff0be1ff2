//! The machine under a communicator: nodes, devices, network cards and the rates of the links between them.
//!
//! A [`Topology`] is plain data with integers only, so that ranks can compare, hash and exchange it
//! ([`Topology::encode`]). What schedules need of it - vendor groups, border ranks, who owns which part of a vector -
//! is derived once per communicator into a [`Hierarchy`].
//!
//! Rates are in MB/s (10^6 bytes per second) and in each direction; links are full duplex. The network between nodes is
//! taken to be free of contention: only the nodes' own cards limit it.

mod assumed;
mod division;
mod encoding;
mod hierarchy;

pub use assumed::Identity;
pub use division::{Division, Seat, Unit, weighted_part};
pub use encoding::{DecodeError, digest_of};
pub use hierarchy::{Hierarchy, Island};

use crate::types::Rank;

/// Whose device a rank works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vendor {
    /// None: the rank's buffers are host memory.
    #[default]
    Host,
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Vendor; 4] = [Vendor::Host, Vendor::Nvidia, Vendor::Amd, Vendor::Intel];

    /// The vendor with a number, which is its place in [`ALL`](Self::ALL), that came from another process.
    pub fn from_number(number: u8) -> Option<Vendor> {
        Vendor::ALL.get(usize::from(number)).copied()
    }

    /// The name in files and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Vendor::Host => "host",
            Vendor::Nvidia => "nvidia",
            Vendor::Amd => "amd",
            Vendor::Intel => "intel",
        }
    }
}

/// A device of a node, and how it hangs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Whose it is.
    pub vendor: Vendor,
    /// Its PCIe link; for [`Vendor::Host`], what one rank reads or writes host memory at.
    pub pcie_mb_s: u32,
    /// NVLink or xGMI to the vendor's other devices in the node, all links together; 0 where there is none.
    pub fabric_mb_s: u32,
    /// Bytes of result that a reduction `a op b` writes per time.
    pub reduce_mb_s: u32,
    /// Bytes that a copy inside the device's memory writes per time.
    pub copy_mb_s: u32,
    /// Time that a reduction or copy takes besides its bytes (a kernel's launch).
    pub launch_ns: u32,
    /// The network card that it uses, by its place in [`NodeKind::nics`].
    pub nic: u16,
    /// The network card reads and writes the device's memory; otherwise messages go through host memory.
    pub gpu_direct: bool,
}

/// What a node looks like. Nodes of one kind share one description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeKind {
    /// For people.
    pub name: String,
    /// Rate of each network card.
    pub nics: Vec<u32>,
    /// Devices, host ranks among them.
    pub devices: Vec<Device>,
    /// Host memory, for what is staged through it: written once and read once.
    pub host_mb_s: u32,
    /// Time from the last byte's departure to its arrival inside the node.
    pub latency_ns: u32,
    /// Devices of different vendors reach each other's memory over PCIe; otherwise through host memory.
    pub cross_vendor_peer: bool,
}

/// The network between nodes, and what a message costs its two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Network {
    /// Time from the last byte's departure to its arrival on another node.
    pub latency_ns: u32,
    /// Time that each message takes of its sender and again of its receiver, during which they start no other.
    pub overhead_ns: u32,
    /// Longer messages wait until the receiver is ready, and ask first.
    pub eager_bytes: u32,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its node, by its place in [`Topology::nodes`].
    pub node: u32,
    /// Its device, by its place in [`NodeKind::devices`]. Several ranks may share one.
    pub device: u16,
}

/// The machine under a communicator. See the [module documentation](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Topology {
    /// Between nodes.
    pub network: Network,
    /// The kinds of nodes there are.
    pub kinds: Vec<NodeKind>,
    /// Each node's kind.
    pub nodes: Vec<u16>,
    /// Each rank's place.
    pub places: Vec<Place>,
}

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Both ranks are on one device.
    Device,
    /// NVLink or xGMI.
    Fabric,
    /// PCIe, from device to device.
    Peer,
    /// PCIe, host memory, PCIe.
    Staged,
    /// Network cards.
    Network,
}

/// What is wrong with a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    /// The sentence for people.
    pub what: String,
}

impl Topology {
    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no ranks.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The kind of a rank's node.
    pub fn kind(&self, rank: usize) -> &NodeKind {
        &self.kinds[usize::from(self.nodes[self.places[rank].node as usize])]
    }

    /// A rank's device.
    pub fn device(&self, rank: usize) -> &Device {
        &self.kind(rank).devices[usize::from(self.places[rank].device)]
    }

    /// The rate of the card that a rank uses.
    pub fn nic_mb_s(&self, rank: usize) -> u32 {
        self.kind(rank).nics.get(usize::from(self.device(rank).nic)).copied().unwrap_or(0)
    }

    /// The way of a message from one rank to another.
    pub fn route(&self, from: usize, to: usize) -> Route {
        let (a, b) = (self.places[from], self.places[to]);
        if a.node != b.node {
            return Route::Network;
        }
        if a.device == b.device {
            return Route::Device;
        }
        let (kind, x, y) = (self.kind(from), self.device(from), self.device(to));
        match x.vendor == y.vendor {
            true if x.fabric_mb_s > 0 && y.fabric_mb_s > 0 => Route::Fabric,
            true => Route::Peer,
            // Host ranks' memory is host memory: the device's own PCIe link is the only one in the way.
            false if x.vendor == Vendor::Host || y.vendor == Vendor::Host => Route::Peer,
            false if kind.cross_vendor_peer => Route::Peer,
            false => Route::Staged,
        }
    }

    /// The topology of a communicator of these ranks of this one, in this order.
    #[must_use]
    pub fn subset(&self, ranks: impl IntoIterator<Item = Rank>) -> Topology {
        let places = ranks.into_iter().map(|rank| self.places[rank.index()]).collect();
        Topology { places, ..self.clone() }
    }

    /// Whether all numbers point somewhere and no rate that something would be divided by is zero.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), Malformed> {
        let wrong = |what: String| Err(Malformed { what });
        for kind in &self.kinds {
            let name = &kind.name;
            if kind.devices.is_empty() {
                return wrong(format!("node kind {name} has no devices"));
            }
            if kind.host_mb_s == 0 {
                return wrong(format!("node kind {name} has no rate for host memory"));
            }
            if kind.nics.contains(&0) {
                return wrong(format!("node kind {name} has a network card of rate 0"));
            }
            for (i, device) in kind.devices.iter().enumerate() {
                let rates = [device.pcie_mb_s, device.reduce_mb_s, device.copy_mb_s];
                if rates.contains(&0) {
                    return wrong(format!("device {i} of node kind {name} has a rate of 0"));
                }
                if self.nodes.len() > 1 && usize::from(device.nic) >= kind.nics.len() {
                    let nic = device.nic;
                    return wrong(format!(
                        "device {i} of node kind {name} uses network card {nic}, which is not there"
                    ));
                }
            }
        }
        if let Some(kind) = self.nodes.iter().find(|&&kind| usize::from(kind) >= self.kinds.len()) {
            return wrong(format!("a node has kind {kind}, which is not there"));
        }
        for (rank, place) in self.places.iter().enumerate() {
            let kind =
                self.nodes.get(place.node as usize).map(|&kind| &self.kinds[usize::from(kind)]);
            if kind.is_none_or(|kind| usize::from(place.device) >= kind.devices.len()) {
                return wrong(format!("rank {rank} is at {place:?}, which is not there"));
            }
        }
        Ok(())
    }
}
