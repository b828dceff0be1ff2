//! What schedules need of a topology: vendor groups on nodes, border weights, and two ways to divide the ranks.
//!
//! An *island* is a vendor group's part of one node. A *cell* is what reduces among itself before anything crosses the
//! network: an island, or, where a node has vendors with equally many ranks, all islands of the node together, because
//! then the exchange between vendors stays inside and all cards carry an equal share.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::division::{Division, Unit};
use super::{NodeKind, Topology, Vendor};
use crate::types::Rank;

/// A stage has at most so many members where a number of nodes can be factored so: few messages in few steps.
const LARGEST_FACTOR: usize = 4;

/// The ranks of one vendor on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Island {
    /// The node.
    pub node: u32,
    /// The vendor.
    pub vendor: Vendor,
    /// The ranks, in ascending order.
    pub ranks: Vec<Rank>,
}

/// A topology and what follows from it, once per communicator. Equal and hashed by its topology.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    topology: Topology,
    digest: u64,
    islands: Vec<Island>,
    island_of: Vec<u32>,
    by_group: Division,
    by_cell: Division,
    libraries: Vec<Vec<Rank>>,
    by_library: Division,
}

impl Hierarchy {
    /// Derives everything from a [valid](Topology::validate) topology.
    pub fn new(topology: Topology) -> Hierarchy {
        let islands = islands(&topology);
        let mut island_of = vec![0; topology.len()];
        for (i, island) in islands.iter().enumerate() {
            for rank in &island.ranks {
                island_of[rank.index()] = i as u32;
            }
        }
        let cells = cells(&topology, &islands);
        let size = topology.len();
        let single = |cell: &Cell| merge(&topology, std::slice::from_ref(cell));
        let mut by_cell: Vec<Unit> = cells.iter().map(single).collect();
        let mut by_group = classes(&topology, cells);
        for units in [&mut by_group, &mut by_cell] {
            choose_homes(&topology, units);
        }
        Hierarchy {
            digest: topology.digest(),
            by_group: Division::new(by_group, size),
            by_cell: Division::new(by_cell, size),
            topology,
            islands,
            island_of,
            libraries: Vec::new(),
            by_library: Division::default(),
        }
    }

    /// The same, where a library of these vendors can do collectives among all ranks of the vendor. Vendors with a single rank
    /// have no use for one.
    #[must_use]
    pub fn with_libraries(mut self, vendors: &[Vendor]) -> Hierarchy {
        let groups = self.vendor_groups().into_iter();
        let served = groups.filter(|(vendor, ranks)| vendors.contains(vendor) && ranks.len() > 1);
        self.libraries = served.map(|(_, ranks)| ranks).collect();
        if self.libraries.is_empty() {
            self.by_library = Division::default();
            return self;
        }
        let unserved = self
            .islands
            .iter()
            .filter(|island| !self.libraries.iter().any(|group| group.contains(&island.ranks[0])));
        let sharers = self.sharers();
        let cells = unserved.map(|island| island_cell(&self.topology, &sharers, island)).collect();
        let mut units = classes(&self.topology, cells);
        units.extend(self.libraries.iter().map(|ranks| Unit::of_library(ranks.clone())));
        units.sort_by_key(|unit| unit.ranks.iter().min().copied());
        choose_homes(&self.topology, &mut units);
        self.by_library = Division::new(units, self.topology.len());
        self
    }

    /// The groups of ranks in which a vendor's library does collectives; each rank's place in its list is its rank there.
    pub fn library_groups(&self) -> &[Vec<Rank>] {
        &self.libraries
    }

    /// The library group of a rank, by its place in [`library_groups`](Self::library_groups).
    pub fn library_group(&self, rank: usize) -> Option<usize> {
        self.libraries.iter().position(|group| group.binary_search(&Rank::from(rank)).is_ok())
    }

    /// Units that are library groups, and for all other ranks those of [`by_group`](Self::by_group) with every vendor of a node
    /// on its own; no units where there are no library groups.
    pub fn by_library(&self) -> &Division {
        &self.by_library
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The digest of the topology.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The vendor groups' parts of nodes, in the order of their lowest ranks.
    pub fn islands(&self) -> &[Island] {
        &self.islands
    }

    /// The island of a rank, by its place in [`islands`](Self::islands).
    pub fn island_of(&self, rank: usize) -> usize {
        self.island_of[rank] as usize
    }

    /// Units of all cells that look alike: the ranks of one vendor group, mostly.
    pub fn by_group(&self) -> &Division {
        &self.by_group
    }

    /// Every cell its own unit.
    pub fn by_cell(&self) -> &Division {
        &self.by_cell
    }

    /// The vendor groups: all ranks of each vendor.
    pub fn vendor_groups(&self) -> Vec<(Vendor, Vec<Rank>)> {
        let mut groups: BTreeMap<Vendor, Vec<Rank>> = BTreeMap::new();
        for rank in 0..self.topology.len() {
            groups.entry(self.topology.device(rank).vendor).or_default().push(Rank::from(rank));
        }
        groups.into_iter().collect()
    }

    /// What a rank can send across the border of its node, in MB/s: its share of the card, or what reaches the card.
    ///
    /// A border rank is one whose weight is not zero.
    pub fn border_weight(&self, rank: usize) -> u32 {
        border_weight(&self.topology, &self.sharers(), rank)
    }

    fn sharers(&self) -> BTreeMap<(u32, u16), u32> {
        sharers(&self.topology)
    }
}

impl PartialEq for Hierarchy {
    fn eq(&self, other: &Hierarchy) -> bool {
        std::ptr::eq(self, other)
            || (self.digest == other.digest
                && self.libraries == other.libraries
                && self.topology == other.topology)
    }
}

impl Eq for Hierarchy {}

impl Hash for Hierarchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
        self.libraries.len().hash(state);
    }
}

fn islands(topology: &Topology) -> Vec<Island> {
    let mut islands: Vec<Island> = Vec::new();
    let mut numbers: BTreeMap<(u32, Vendor), usize> = BTreeMap::new();
    for (rank, place) in topology.places.iter().enumerate() {
        let (node, vendor) = (place.node, topology.device(rank).vendor);
        let number = *numbers.entry((node, vendor)).or_insert_with(|| {
            islands.push(Island { node, vendor, ranks: Vec::new() });
            islands.len() - 1
        });
        islands[number].ranks.push(Rank::from(rank));
    }
    islands
}

/// What reduces among itself first: its stages, and its ranks in the order of coordinates.
struct Cell {
    stages: Vec<usize>,
    ranks: Vec<Rank>,
    weights: Vec<u32>,
}

fn cells(topology: &Topology, islands: &[Island]) -> Vec<Cell> {
    let mut by_node: BTreeMap<u32, Vec<&Island>> = BTreeMap::new();
    for island in islands {
        by_node.entry(island.node).or_default().push(island);
    }
    let sharers = sharers(topology);
    let mut cells = Vec::new();
    for mut here in by_node.into_values() {
        let members = here[0].ranks.len();
        // The order of vendors, not of ranks: nodes look alike although their ranks are numbered differently.
        here.sort_by_key(|island| island.vendor);
        if here.len() > 1 && here.iter().all(|island| island.ranks.len() == members) {
            let ranks =
                (0..members).flat_map(|m| here.iter().map(move |island| island.ranks[m])).collect();
            cells.push(Cell {
                stages: vec![members, here.len()],
                ranks,
                weights: vec![1; members],
            });
            continue;
        }
        cells.extend(here.into_iter().map(|island| island_cell(topology, &sharers, island)));
    }
    cells.sort_by_key(|cell| cell.ranks.iter().min().copied());
    cells
}

/// An island as a cell of its own.
fn island_cell(topology: &Topology, sharers: &BTreeMap<(u32, u16), u32>, island: &Island) -> Cell {
    let weight = |rank: &Rank| border_weight(topology, sharers, rank.index());
    Cell {
        stages: vec![island.ranks.len()],
        ranks: island.ranks.clone(),
        weights: island.ranks.iter().map(weight).collect(),
    }
}

/// Cells that look alike, merged into units.
fn classes(topology: &Topology, cells: Vec<Cell>) -> Vec<Unit> {
    let mut classes: Vec<Vec<Cell>> = Vec::new();
    for cell in cells {
        match classes.iter_mut().find(|class| alike(topology, &class[0], &cell)) {
            Some(class) => class.push(cell),
            None => classes.push(vec![cell]),
        }
    }
    classes.iter().map(|class| merge(topology, class)).collect()
}

/// Whether two cells can be one unit: the same stages, weights and devices.
fn alike(topology: &Topology, a: &Cell, b: &Cell) -> bool {
    let node = |cell: &Cell| topology.places[cell.ranks[0].index()].node;
    let devices = || a.ranks.iter().zip(&b.ranks);
    node(a) != node(b)
        && a.stages == b.stages
        && a.weights == b.weights
        && devices().all(|(x, y)| topology.device(x.index()) == topology.device(y.index()))
}

/// One unit of cells that are alike: the cells' own stages, then the factors of their number.
fn merge(topology: &Topology, cells: &[Cell]) -> Unit {
    debug_assert!(!topology.is_empty());
    let first = &cells[0];
    let ranks = (0..first.ranks.len())
        .flat_map(|coordinate| cells.iter().map(move |cell| cell.ranks[coordinate]))
        .collect();
    let mut stages = first.stages.clone();
    stages.extend(factors(cells.len()));
    // The weights belong to the first stage.
    let weights = if stages[0] > 1 { first.weights.clone() } else { Vec::new() };
    stages.retain(|&members| members > 1);
    Unit { stages, ranks, weights, home: 1, library: false }
}

/// Factors of `n` from largest to smallest, none above [`LARGEST_FACTOR`] but primes.
fn factors(mut n: usize) -> Vec<usize> {
    let mut list = Vec::new();
    let mut factor = LARGEST_FACTOR;
    while n > 1 {
        if n.is_multiple_of(factor) {
            list.push(factor);
            n /= factor;
        } else {
            factor = match factor {
                3.. if factor <= LARGEST_FACTOR => factor - 1,
                2 => LARGEST_FACTOR + 1,
                _ if factor * factor > n => n,
                _ => factor + 1,
            };
        }
    }
    list.sort_unstable_by(|a, b| b.cmp(a));
    list
}

/// How many ranks use each card.
fn sharers(topology: &Topology) -> BTreeMap<(u32, u16), u32> {
    let mut sharers = BTreeMap::new();
    for (rank, place) in topology.places.iter().enumerate() {
        *sharers.entry((place.node, topology.device(rank).nic)).or_default() += 1;
    }
    sharers
}

fn border_weight(topology: &Topology, sharers: &BTreeMap<(u32, u16), u32>, rank: usize) -> u32 {
    let device = topology.device(rank);
    let kind: &NodeKind = topology.kind(rank);
    let mut reach = device.pcie_mb_s;
    if !device.gpu_direct {
        reach = reach.min(kind.host_mb_s / 2);
    }
    let several_nodes = topology.places.iter().any(|place| place.node != topology.places[0].node);
    if !several_nodes {
        return reach;
    }
    let sharing = sharers.get(&(topology.places[rank].node, device.nic)).copied().unwrap_or(1);
    reach.min(topology.nic_mb_s(rank) / sharing.max(1))
}

/// How much each unit combines where three or more meet, so that the slowest border is done soonest.
///
/// A unit of M cells with rate B each, of K units, carries 2 (M - 1) / M inside and (1 + (K - 2) h) / M between units for
/// its share h of the combining. The shares that make all times equal are found by halving the interval for the time.
fn choose_homes(topology: &Topology, units: &mut [Unit]) {
    const ONE: u128 = 1 << 20;
    let count = units.len() as u128;
    if count < 3 {
        return;
    }
    let sharers = sharers(topology);
    // Per unit: nodes, and what a node's ranks carry together.
    let borders: Vec<(u128, u128)> = units
        .iter()
        .map(|unit| {
            let node = |rank: &Rank| topology.places[rank.index()].node;
            let mut nodes: Vec<u32> = unit.ranks.iter().map(node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let rate: u128 = unit
                .ranks
                .iter()
                .map(|rank| u128::from(border_weight(topology, &sharers, rank.index())))
                .sum();
            (nodes.len() as u128, (rate / nodes.len() as u128).max(1))
        })
        .collect();
    // A time of one is a whole vector over 1 MB/s, in parts of ONE.
    let share = |time: u128, (nodes, rate): (u128, u128)| {
        let carried = time * rate * nodes;
        (carried.saturating_sub((2 * nodes - 1) * ONE * ONE) / ((count - 2) * ONE)).min(ONE)
    };
    let (mut low, mut high) = (0u128, 3 * count * ONE * ONE);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let sum: u128 = borders.iter().map(|&border| share(middle, border)).sum();
        if sum >= ONE { high = middle } else { low = middle }
    }
    for (unit, border) in units.iter_mut().zip(borders) {
        unit.home = share(high, border) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Device, Network, Place};

    fn gpu(vendor: Vendor, nic: u16) -> Device {
        Device {
            vendor,
            pcie_mb_s: 25_000,
            fabric_mb_s: 0,
            reduce_mb_s: 300_000,
            copy_mb_s: 300_000,
            launch_ns: 2_000,
            nic,
            gpu_direct: true,
        }
    }

    fn kind(nics: &[u32], devices: Vec<Device>) -> NodeKind {
        NodeKind {
            name: "test".into(),
            nics: nics.to_vec(),
            devices,
            host_mb_s: 100_000,
            latency_ns: 1_000,
            cross_vendor_peer: false,
        }
    }

    fn cluster(nodes: &[(usize, &NodeKind)]) -> Topology {
        let mut topology = Topology { network: Network::default(), ..Topology::default() };
        for (kind, (count, description)) in nodes.iter().enumerate() {
            topology.kinds.push((*description).clone());
            for _ in 0..*count {
                let node = topology.nodes.len() as u32;
                topology.nodes.push(kind as u16);
                let devices = 0..description.devices.len() as u16;
                topology.places.extend(devices.map(|device| Place { node, device }));
            }
        }
        topology.validate().unwrap();
        topology
    }

    #[test]
    fn vendor_groups_become_units_with_factored_stages() {
        let a = kind(&[20_000], vec![gpu(Vendor::Nvidia, 0); 4]);
        let b = kind(&[20_000], vec![gpu(Vendor::Amd, 0); 4]);
        let h = Hierarchy::new(cluster(&[(6, &a), (8, &b)]));
        let stages: Vec<&[usize]> = h.by_group().units.iter().map(|u| &u.stages[..]).collect();
        assert_eq!(stages, [&[4, 3, 2][..], &[4, 4, 2]]);
        assert_eq!(h.by_cell().units.len(), 14);
        assert_eq!(h.vendor_groups().len(), 2);
        assert_eq!(h.border_weight(0), 5_000);
        // Member 1 of the first node: its island's second rank.
        assert_eq!(h.by_group().seats[1].index, 6);
    }

    #[test]
    fn equal_vendors_of_a_node_reduce_together_and_unequal_ones_are_units() {
        let mut devices = vec![gpu(Vendor::Nvidia, 0); 2];
        devices.extend([gpu(Vendor::Amd, 0); 2]);
        let h = Hierarchy::new(cluster(&[(3, &kind(&[20_000], devices.clone()))]));
        assert_eq!(h.by_group().units.len(), 1);
        assert_eq!(h.by_group().units[0].stages, [2, 2, 3]);
        devices.push(gpu(Vendor::Nvidia, 0));
        let h = Hierarchy::new(cluster(&[(1, &kind(&[20_000], devices))]));
        let sizes: Vec<usize> = h.by_group().units.iter().map(|u| u.ranks.len()).collect();
        assert_eq!(sizes, [3, 2]);
    }

    #[test]
    fn slow_borders_combine_nothing() {
        let slow = kind(&[12_000], vec![gpu(Vendor::Nvidia, 0); 4]);
        let fast = kind(&[24_000], vec![gpu(Vendor::Amd, 0); 4]);
        let h = Hierarchy::new(cluster(&[(2, &slow), (2, &fast)]));
        let homes: Vec<u32> = h.by_cell().units.iter().map(|u| u.home).collect();
        assert!(homes[0] < 200 && homes[1] < 200, "{homes:?}");
        assert!(homes[2].abs_diff(1 << 19) < 200 && homes[3].abs_diff(1 << 19) < 200, "{homes:?}");
    }

    #[test]
    fn eight_two_and_six_nodes_are_done_at_once() {
        let node = |vendor| kind(&[20_000], vec![gpu(vendor, 0)]);
        let h = Hierarchy::new(cluster(&[
            (8, &node(Vendor::Nvidia)),
            (2, &node(Vendor::Amd)),
            (6, &node(Vendor::Intel)),
        ]));
        let homes: Vec<f64> =
            h.by_group().units.iter().map(|u| f64::from(u.home) / f64::from(1 << 20)).collect();
        for (found, wanted) in homes.iter().zip([0.0, 0.75, 0.25]) {
            assert!((found - wanted).abs() < 0.001, "{homes:?}");
        }
    }

    #[test]
    fn numbers_are_factored() {
        assert_eq!(factors(512), [4, 4, 4, 4, 2]);
        assert_eq!(factors(6), [3, 2]);
        assert_eq!(factors(35), [7, 5]);
        assert_eq!(factors(509), [509]);
        assert_eq!(factors(1), []);
    }
}
