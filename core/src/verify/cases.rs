//! Calls of all ranks, for the verifier and the simulator.

use std::sync::Arc;

use crate::call::{Block, Call, Collective, Group, Layout, Neighbours, Root};
use crate::topology::{Device, Hierarchy, Network, NodeKind, Place, Topology, Vendor};
use crate::types::Rank;

/// What varies between cases of one collective and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Elements of the vector or of a block.
    pub count: usize,
    /// The root.
    pub root: usize,
    /// `MPI_IN_PLACE`, where the collective has it.
    pub in_place: bool,
    /// The operation does not commute.
    pub ordered: bool,
    /// Elements per chunk.
    pub chunk: usize,
    /// Decides irregular block sizes, gaps and neighbours.
    pub seed: u64,
}

impl Variant {
    /// `count` elements, root 0, not in place, commutative, not chunked.
    pub const fn plain(count: usize) -> Variant {
        Variant { count, root: 0, in_place: false, ordered: false, chunk: usize::MAX, seed: 1 }
    }
}

/// The calls of all ranks of an intra-communicator. Neighbourhoods are cartesian for even seeds, graphs for odd ones.
pub fn intra(collective: Collective, size: usize, variant: &Variant) -> Vec<Call> {
    let topology = Arc::new(hierarchy(size, variant.seed));
    let with_topology = |call| Call { topology: Some(Arc::clone(&topology)), ..call };
    (0..size).map(|rank| with_topology(intra_call(collective, rank, size, variant))).collect()
}

/// The [`machine`], with vendors' libraries for all devices, for one vendor's, or for none.
pub fn hierarchy(size: usize, seed: u64) -> Hierarchy {
    let hierarchy = Hierarchy::new(machine(size, seed));
    match mix(seed, size as u64 + 30) % 4 {
        0 => hierarchy,
        1 => hierarchy.with_libraries(&[Vendor::Nvidia]),
        _ => hierarchy.with_libraries(&[Vendor::Nvidia, Vendor::Amd]),
    }
}

/// A machine for so many ranks: the seed decides nodes, vendors, cards and how ranks are placed.
///
/// Among them are nodes of one rank, unequal vendor groups, two vendors in one node, host ranks, several ranks on one device, cards of
/// unequal rate, and ranks placed in turn.
pub fn machine(size: usize, seed: u64) -> Topology {
    let hash = |salt: u64| mix(seed, salt);
    let device = |vendor, nic| Device {
        vendor,
        pcie_mb_s: 25_000,
        fabric_mb_s: if vendor == Vendor::Nvidia { 300_000 } else { 0 },
        reduce_mb_s: 200_000,
        copy_mb_s: 200_000,
        launch_ns: 2_000,
        nic,
        gpu_direct: vendor == Vendor::Nvidia || seed.is_multiple_of(2),
    };
    let vendors = [Vendor::Nvidia, Vendor::Amd, Vendor::Host];
    let most = 1 + hash(1) % 3;
    // The last kind is mixed: a device of each vendor and one more of the first.
    let mixed = [Vendor::Nvidia, Vendor::Amd, Vendor::Host, Vendor::Nvidia];
    let lists: Vec<Vec<Device>> = match seed % 5 {
        1 => vec![mixed[..2 + (hash(2) % 3) as usize].iter().map(|&v| device(v, 0)).collect()],
        _ => vendors[..most as usize]
            .iter()
            .map(|&vendor| {
                (0..1 + hash(vendor as u64 + 3) % 4)
                    .map(|i| device(vendor, (i % 2) as u16))
                    .collect()
            })
            .collect(),
    };
    let kinds: Vec<NodeKind> = lists
        .into_iter()
        .enumerate()
        .map(|(i, devices)| NodeKind {
            name: format!("kind{i}"),
            nics: vec![12_000, 12_000 * (1 + hash(7) % 2) as u32],
            devices,
            host_mb_s: 80_000,
            latency_ns: 1_500,
            cross_vendor_peer: seed.is_multiple_of(3),
        })
        .collect();
    let network = Network { latency_ns: 3_000, overhead_ns: 300, eager_bytes: 8_192 };
    let mut topology = Topology { network, kinds, nodes: Vec::new(), places: Vec::new() };
    let per_device = 1 + hash(8) % 2;
    while topology.places.len() < size {
        let (node, kind) = (topology.nodes.len(), hash(20 + topology.nodes.len() as u64));
        let kind = kind as usize % topology.kinds.len();
        topology.nodes.push(kind as u16);
        for device in 0..topology.kinds[kind].devices.len() {
            let place = Place { node: node as u32, device: device as u16 };
            topology.places.extend((0..per_device).map(|_| place));
        }
    }
    topology.places.truncate(size);
    if hash(9).is_multiple_of(3) {
        let stride = (1..size).rev().find(|&s| gcd(s, size) == 1).unwrap_or(1).div_ceil(2).max(1);
        let stride = if gcd(stride, size) == 1 { stride } else { 1 };
        topology.places = (0..size).map(|i| topology.places[i * stride % size]).collect();
    }
    topology
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn intra_call(collective: Collective, rank: usize, size: usize, v: &Variant) -> Call {
    use Collective::*;
    let layout = match collective {
        Barrier => Layout::uniform(0),
        Allgatherv => {
            let recv = blocks(size, v, |peer| length(peer, v));
            Layout::Blocks { send: own(if v.in_place { None } else { Some(recv[rank].len) }), recv }
        }
        Alltoallv | Alltoallw => {
            // In place, what goes to a rank is as long as what comes from it.
            let pair = |a: usize, b: usize| {
                length(if v.in_place { a + b + a * b } else { a * size + b }, v)
            };
            let recv = blocks(size, v, |peer| pair(peer, rank));
            let send = if v.in_place {
                Arc::clone(&recv)
            } else {
                blocks(size, v, |peer| pair(rank, peer))
            };
            Layout::Blocks { send, recv }
        }
        Gatherv => {
            let recv = blocks(size, v, |peer| length(peer, v));
            let at_root = rank == v.root;
            let send = own(if at_root && v.in_place { None } else { Some(recv[rank].len) });
            Layout::Blocks { send, recv: if at_root { recv } else { Arc::new([]) } }
        }
        Scatterv => {
            let send = blocks(size, v, |peer| length(peer, v));
            let at_root = rank == v.root;
            let recv = own(if at_root && v.in_place { None } else { Some(send[rank].len) });
            Layout::Blocks { send: if at_root { send } else { Arc::new([]) }, recv }
        }
        ReduceScatter => {
            let send = tiled(size, |peer| length(peer, v));
            let len = send[rank].len;
            Layout::Blocks { send, recv: Arc::new([Block { start: 0, len }]) }
        }
        NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv
        | NeighborAlltoallw => return neighbour_call(collective, rank, size, v),
        _ => Layout::uniform(v.count),
    };
    let mut call = Call::new(collective, rank, size, layout);
    if collective.rooted() {
        call.root = Root::Rank(Rank::from(v.root));
    }
    let rooted_in_place = matches!(collective, Reduce | Gather | Gatherv | Scatter | Scatterv);
    call.in_place = v.in_place
        && !matches!(collective, Barrier | Bcast)
        && (!rooted_in_place || rank == v.root);
    call.ordered = v.ordered && collective.reduces();
    call.chunk = v.chunk;
    call
}

/// The calls of both groups of an inter-communicator, `sizes.0` ranks and then `sizes.1`. The root of rooted ones is
/// in the first group for even seeds.
pub fn inter(collective: Collective, sizes: (usize, usize), variant: &Variant) -> Vec<Call> {
    let first = (0..sizes.0).map(|rank| inter_call(collective, true, rank, sizes, variant));
    let second = (0..sizes.1).map(|rank| inter_call(collective, false, rank, sizes, variant));
    first.chain(second).collect()
}

fn inter_call(
    collective: Collective,
    in_first: bool,
    rank: usize,
    sizes: (usize, usize),
    v: &Variant,
) -> Call {
    use Collective::*;
    let (local, remote) = if in_first { sizes } else { (sizes.1, sizes.0) };
    let root_in_first = v.seed.is_multiple_of(2);
    let root_rank = v.root % if root_in_first { sizes.0 } else { sizes.1 };
    let root = match (collective.rooted(), in_first == root_in_first) {
        (false, _) => Root::None,
        (true, false) => Root::Rank(Rank::from(root_rank)),
        (true, true) if rank == root_rank => Root::Here,
        (true, true) => Root::Elsewhere,
    };
    // Directions may differ where MPI lets them.
    let counts = if in_first { (v.count, v.count + 1) } else { (v.count + 1, v.count) };
    let salt = |first: bool| if first { 100 } else { 200 };
    let layout = match collective {
        Allgather | Alltoall => Layout::Uniform { count: counts.0, remote_count: counts.1 },
        Allgatherv => Layout::Blocks {
            send: own(Some(length(rank + salt(in_first), v))),
            recv: blocks(remote, v, |peer| length(peer + salt(!in_first), v)),
        },
        Alltoallv | Alltoallw => {
            let pair =
                |from_first: bool, a: usize, b: usize| length(a * 31 + b + salt(from_first), v);
            Layout::Blocks {
                send: blocks(remote, v, |peer| pair(in_first, rank, peer)),
                recv: blocks(remote, v, |peer| pair(!in_first, peer, rank)),
            }
        }
        Gatherv => Layout::Blocks {
            send: own(matches!(root, Root::Rank(_)).then(|| length(rank, v))),
            recv: if root == Root::Here { blocks(remote, v, |p| length(p, v)) } else { own(None) },
        },
        Scatterv => Layout::Blocks {
            send: if root == Root::Here { blocks(remote, v, |p| length(p, v)) } else { own(None) },
            recv: own(matches!(root, Root::Rank(_)).then(|| length(rank, v))),
        },
        // Both groups cut the same vector.
        ReduceScatter => {
            let send =
                tiled(local, |i| crate::algorithms::patterns::even_part(v.count * 3, local, i).len);
            let len = send[rank].len;
            Layout::Blocks { send, recv: Arc::new([Block { start: 0, len }]) }
        }
        ReduceScatterBlock => Layout::uniform(v.count * remote),
        Barrier => Layout::uniform(0),
        _ => Layout::uniform(v.count),
    };
    let mut call = Call::new(collective, rank, local, layout);
    call.group = Group { remote_size: Some(Rank::from(remote).0), ..call.group };
    call.root = root;
    call.ordered = v.ordered && collective.reduces();
    call.chunk = v.chunk;
    call
}

fn neighbour_call(collective: Collective, rank: usize, size: usize, v: &Variant) -> Call {
    let neighbours =
        if v.seed.is_multiple_of(2) { grid(rank, size, v.seed) } else { graph(rank, size, v.seed) };
    let regular =
        matches!(collective, Collective::NeighborAllgather | Collective::NeighborAlltoall);
    let gathers =
        matches!(collective, Collective::NeighborAllgather | Collective::NeighborAllgatherv);
    // A block's length follows from its sender and which of its blocks it is; a graph numbers them per pair.
    let len = |from: usize, to: usize, slot: usize| match (regular, gathers) {
        (true, _) => v.count,
        (false, true) => length(from, v),
        (false, false) => length(from * 7 + to * 3 + slot, v),
    };
    let slot = |list: &[Option<Rank>], index: usize, flip: usize| {
        if neighbours.cartesian {
            index ^ flip
        } else {
            list[..index].iter().filter(|&&other| other == list[index]).count()
        }
    };
    let outgoing = |i: usize| {
        neighbours.destinations[i]
            .map_or(0, |to| len(rank, to.index(), slot(&neighbours.destinations, i, 0)))
    };
    let incoming = |i: usize| {
        neighbours.sources[i]
            .map_or(0, |from| len(from.index(), rank, slot(&neighbours.sources, i, 1)))
    };
    let send = if gathers {
        own(Some(len(rank, 0, 0)))
    } else {
        blocks(neighbours.destinations.len(), v, outgoing)
    };
    let recv = blocks(neighbours.sources.len(), v, incoming);
    let mut call = Call::new(collective, rank, size, Layout::Blocks { send, recv });
    call.neighbours = Some(neighbours);
    call
}

/// A grid of one or two dimensions, the first periodic or not.
fn grid(rank: usize, size: usize, seed: u64) -> Neighbours {
    let width = (1..=size).rev().find(|w| size.is_multiple_of(*w) && w * w <= size).unwrap_or(1);
    let dims = if seed.is_multiple_of(4) { vec![size] } else { vec![size / width, width] };
    let periodic = [!seed.is_multiple_of(3), true];
    let mut list = Vec::new();
    let mut stride = size;
    for (&dim, periodic) in dims.iter().zip(periodic) {
        stride /= dim;
        let at = rank / stride % dim;
        let base = rank - at * stride;
        for (step, wraps) in [(dim - 1, at == 0), (1, at + 1 == dim)] {
            let there = (at + step) % dim;
            list.push((periodic || !wraps).then(|| Rank::from(base + there * stride)));
        }
    }
    Neighbours { sources: list.clone().into(), destinations: list.into(), cartesian: true }
}

/// A graph in which rank a sends to b as often as a hash says, up to twice, itself included.
fn graph(rank: usize, size: usize, seed: u64) -> Neighbours {
    let times = |from: usize, to: usize| match mix(seed, (from * 1009 + to) as u64) % 7 {
        0 | 1 => 1,
        2 => 2,
        _ => 0,
    };
    let repeated = |peer: usize, n: usize| std::iter::repeat_n(Some(Rank::from(peer)), n);
    Neighbours {
        sources: (0..size).flat_map(|peer| repeated(peer, times(peer, rank))).collect(),
        destinations: (0..size).rev().flat_map(|peer| repeated(peer, times(rank, peer))).collect(),
        cartesian: false,
    }
}

/// An irregular length around `count`; some are zero.
fn length(salt: usize, v: &Variant) -> usize {
    match mix(v.seed, salt as u64) % 4 {
        0 => 0,
        1 => v.count,
        2 => v.count + 1,
        _ => v.count.div_ceil(2),
    }
}

/// Blocks in an order and with gaps that the seed decides.
fn blocks(n: usize, v: &Variant, len: impl Fn(usize) -> usize) -> Arc<[Block]> {
    let mut list = vec![Block::default(); n];
    let mut at = 0;
    for i in 0..n {
        let index = if v.seed.is_multiple_of(3) { n - 1 - i } else { i };
        at += (v.seed % 2) as usize * (index % 2);
        list[index] = Block { start: at, len: len(index) };
        at += list[index].len;
    }
    list.into()
}

/// Blocks that follow each other from 0 on.
fn tiled(n: usize, len: impl Fn(usize) -> usize) -> Arc<[Block]> {
    let mut at = 0;
    (0..n)
        .map(|i| {
            let block = Block { start: at, len: len(i) };
            at += block.len;
            block
        })
        .collect()
}

/// One block from 0 on, or none.
fn own(len: Option<usize>) -> Arc<[Block]> {
    len.map(|len| Block { start: 0, len }).into_iter().collect()
}

/// SplitMix64's mixing step: any number to a number without a pattern.
fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed.wrapping_add(salt.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
