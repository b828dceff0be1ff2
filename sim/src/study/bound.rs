//! Times that no schedule can beat on a cluster.
//!
//! Ranks on one device, and ranks on one node, are units; what crosses a unit's links is counted. For p units that all need what all
//! others have (allreduce), 2 (p - 1) one-way messages are needed for every element: F. Harary, A. Schwenk, "The Communication
//! Problem on Graphs and Digraphs", Journal of the Franklin Institute 297(6), 1974; as a bound on allreduce also P. Patarasuk, X. Yuan,
//! Journal of Parallel and Distributed Computing 69(2), 2009. Of them, each uses one outgoing and one incoming link. So, with
//! n bytes, and unit u's rate B(u) each way:
//!
//! - allreduce: 2 (p - 1) n / sum B, and n / B(u) for every unit; and, since contracting all other nodes into one leaves g + 1
//!   units on a node of g devices, 2 g n / (sum of its devices' B + the node's B), because a message that crosses the
//!   border saves one of the device links on one side only;
//! - reduce-scatter and allgather of n bytes in total, own share s(u): (p - 1) n / sum B, and (n - s(u)) / B(u);
//! - bcast and reduce: n / B(u) for every unit; gather and scatter: what is not the root's own over its links, and s(u) / B(u)
//!   elsewhere;
//! - alltoall: what a unit has for the others over its links;
//! - always: a latency and a message's time at both ends.
//!
//! A device's B is all its links together, even where a schedule can't use them at once, so bounds may be below what is
//! possible. Times for reductions are left out.

use std::collections::BTreeMap;

use hetccl_core::Collective;
use hetccl_core::topology::Topology;

/// Ranks behind common links, and the links' rate each way in bytes per microsecond.
struct Unit {
    ranks: f64,
    rate: f64,
    /// Devices in it, their rates together; for nodes.
    devices: (f64, f64),
    has_root: bool,
}

/// The bound in microseconds. `bytes` is the vector, or everything that the ranks (or the root) have together.
pub fn lower_bound_us(topology: &Topology, collective: Collective, bytes: f64) -> f64 {
    let size = topology.len();
    if size == 1 {
        return 0.0;
    }
    let network = topology.network;
    let (devices, nodes) = units(topology);
    let several = nodes.len() > 1;
    let inside = topology.kinds.iter().map(|kind| kind.latency_ns).min().unwrap_or(0);
    let latency = if several { network.latency_ns } else { inside };
    let mut bound = f64::from(latency + 2 * network.overhead_ns) / 1e3;
    for (level, units) in [&devices, &nodes].into_iter().enumerate() {
        if units.len() > 1 {
            let time = level_us(collective, units, size as f64, bytes, level == 1);
            bound = bound.max(time);
        }
    }
    bound
}

fn level_us(collective: Collective, units: &[Unit], size: f64, bytes: f64, nodes: bool) -> f64 {
    use Collective::*;
    let count = units.len() as f64;
    let total: f64 = units.iter().map(|unit| unit.rate).sum();
    let worst = |time: &dyn Fn(&Unit) -> f64| units.iter().map(time).fold(0.0, f64::max);
    let share = |unit: &Unit| bytes * unit.ranks / size;
    match collective {
        Allreduce => {
            let both = |unit: &Unit| {
                let (devices, rate) = unit.devices;
                if nodes { 2.0 * devices * bytes / (rate + unit.rate) } else { 0.0 }
            };
            (2.0 * (count - 1.0) * bytes / total)
                .max(worst(&|unit| bytes / unit.rate))
                .max(worst(&both))
        }
        Reduce | Bcast => worst(&|unit| bytes / unit.rate),
        ReduceScatter | ReduceScatterBlock | Allgather | Allgatherv => {
            ((count - 1.0) * bytes / total).max(worst(&|unit| (bytes - share(unit)) / unit.rate))
        }
        Gather | Gatherv | Scatter | Scatterv => worst(&|unit| {
            let crossing = if unit.has_root { bytes - share(unit) } else { share(unit) };
            crossing / unit.rate
        }),
        Alltoall | Alltoallv | Alltoallw => {
            worst(&|unit| share(unit) * (size - unit.ranks) / size / unit.rate)
        }
        _ => 0.0,
    }
}

/// Devices with ranks, and nodes with ranks. Rank 0 is the root.
fn units(topology: &Topology) -> (Vec<Unit>, Vec<Unit>) {
    let mut devices: BTreeMap<(u32, u16), Unit> = BTreeMap::new();
    for (rank, place) in topology.places.iter().enumerate() {
        let device = topology.device(rank);
        let rate = f64::from(device.pcie_mb_s + device.fabric_mb_s);
        let unit = devices.entry((place.node, place.device)).or_insert(Unit {
            ranks: 0.0,
            rate,
            devices: (0.0, 0.0),
            has_root: rank == 0,
        });
        unit.ranks += 1.0;
    }
    let mut nodes: BTreeMap<u32, Unit> = BTreeMap::new();
    for (&(node, _), device) in &devices {
        let kind = &topology.kinds[usize::from(topology.nodes[node as usize])];
        let rate: f64 = kind.nics.iter().map(|&rate| f64::from(rate)).sum();
        let unit = nodes.entry(node).or_insert(Unit {
            ranks: 0.0,
            rate,
            devices: (0.0, 0.0),
            has_root: false,
        });
        unit.ranks += device.ranks;
        unit.devices = (unit.devices.0 + 1.0, unit.devices.1 + device.rate);
        unit.has_root |= device.has_root;
    }
    (devices.into_values().collect(), nodes.into_values().collect())
}
