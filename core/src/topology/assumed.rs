//! A topology for ranks of which only node, vendor and device are known, with rates that are assumed, not measured.
//!
//! Groups follow from who is where, which is exact. The rates only decide between schedules, so what matters is their
//! order: a PCIe 4 x16 link and a 100 Gbit/s card per node, no NVLink or xGMI, no card that reads device memory, and a launch
//! that costs microseconds. They are the same on every rank, as a choice between schedules must be.

use std::collections::HashMap;

use super::{Device, Network, NodeKind, Place, Topology, Vendor};

const PCIE_MB_S: u32 = 25_000;
const HOST_RANK_MB_S: u32 = 10_000;
const HOST_MB_S: u32 = 50_000;
const NIC_MB_S: u32 = 12_500;
const DEVICE_MEMORY_MB_S: u32 = 300_000;
const LAUNCH_NS: u32 = 10_000;
const NETWORK: Network = Network { latency_ns: 5_000, overhead_ns: 1_000, eager_bytes: 8 << 10 };
const INSIDE_LATENCY_NS: u32 = 2_000;

/// What a rank says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The same for ranks on one node.
    pub node: u64,
    /// Whose device it works on.
    pub vendor: Vendor,
    /// The same for ranks on one device of the node; 0 when the rank has none of its own, or can't say.
    pub device: u64,
}

impl Topology {
    /// The machine under ranks with these identities, in the order of ranks.
    ///
    /// Nodes are numbered in the order of their first ranks. Ranks of one node and vendor with the same device number
    /// other than 0 share a device.
    pub fn assumed(ranks: &[Identity]) -> Topology {
        let mut nodes: Vec<Vec<Identity>> = Vec::new();
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let mut places = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let node = *numbers.entry(rank.node).or_insert_with(|| {
                nodes.push(Vec::new());
                nodes.len() as u32 - 1
            });
            let here = &mut nodes[node as usize];
            let shared = here.iter().position(|known| rank.device != 0 && known == rank);
            let device = shared.unwrap_or_else(|| {
                here.push(*rank);
                here.len() - 1
            });
            places.push(Place { node, device: device as u16 });
        }
        let mut topology = Topology { network: NETWORK, places, ..Topology::default() };
        let mut known: HashMap<Vec<Vendor>, u16> = HashMap::new();
        for node in nodes {
            let vendors: Vec<Vendor> = node.iter().map(|identity| identity.vendor).collect();
            let kind = *known.entry(vendors).or_insert_with_key(|vendors| {
                topology.kinds.push(kind(topology.kinds.len(), vendors));
                topology.kinds.len() as u16 - 1
            });
            topology.nodes.push(kind);
        }
        topology
    }
}

fn kind(number: usize, vendors: &[Vendor]) -> NodeKind {
    NodeKind {
        name: format!("kind{number}"),
        nics: vec![NIC_MB_S],
        devices: vendors.iter().map(|&vendor| device(vendor)).collect(),
        host_mb_s: HOST_MB_S,
        latency_ns: INSIDE_LATENCY_NS,
        cross_vendor_peer: false,
    }
}

fn device(vendor: Vendor) -> Device {
    let host = vendor == Vendor::Host;
    let memory_mb_s = if host { HOST_RANK_MB_S } else { DEVICE_MEMORY_MB_S };
    Device {
        vendor,
        pcie_mb_s: if host { HOST_RANK_MB_S } else { PCIE_MB_S },
        fabric_mb_s: 0,
        reduce_mb_s: memory_mb_s,
        copy_mb_s: memory_mb_s,
        launch_ns: if host { 0 } else { LAUNCH_NS },
        nic: 0,
        // A card reads host memory as it is.
        gpu_direct: host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Hierarchy;

    fn identity(node: u64, vendor: Vendor, device: u64) -> Identity {
        Identity { node, vendor, device }
    }

    #[test]
    fn ranks_are_found_on_their_nodes_and_devices() {
        let ranks = [
            identity(70, Vendor::Nvidia, 5),
            identity(30, Vendor::Amd, 5),
            identity(70, Vendor::Nvidia, 5),
            identity(70, Vendor::Host, 0),
            identity(70, Vendor::Host, 0),
            identity(30, Vendor::Amd, 6),
        ];
        let topology = Topology::assumed(&ranks);
        topology.validate().unwrap();
        let places: Vec<(u32, u16)> =
            topology.places.iter().map(|place| (place.node, place.device)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]);
        let groups = Hierarchy::new(topology).vendor_groups();
        let sizes: Vec<(Vendor, usize)> = groups.iter().map(|(v, r)| (*v, r.len())).collect();
        assert_eq!(sizes, [(Vendor::Host, 2), (Vendor::Nvidia, 2), (Vendor::Amd, 2)]);
    }

    #[test]
    fn nodes_that_look_alike_share_a_kind() {
        let ranks: Vec<Identity> =
            (0..8).map(|i| identity(i / 2 + 1, Vendor::Nvidia, i % 2 + 1)).collect();
        let topology = Topology::assumed(&ranks);
        assert_eq!((topology.nodes.len(), topology.kinds.len()), (4, 1));
        assert_eq!(Hierarchy::new(topology).by_group().units.len(), 1);
    }
}
