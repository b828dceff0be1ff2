//! The cost model: which algorithm a collective should use on a known machine, and in which chunks.
//!
//! An estimate is `carried * bytes + filling * chunk + messages * overhead + hops`: what the busiest link carries, the time
//! until the first chunk has gone through all phases, what messages take of their rank, and latencies that follow each other. The terms
//! are those of the simulator (alpha-beta with links that carry one message at a time), from the same [`Topology`].
//! Only what all ranks agree on is looked at.

use crate::algorithms::{Algorithm, by_name};
use crate::call::{Call, Collective, Layout};
use crate::select::{Choices, payload_bytes, select};
use crate::topology::{Division, Hierarchy, Route, Topology, Unit};

/// Chunks are powers of two of bytes in this range, or the whole.
const SMALLEST_CHUNK: usize = 64 << 10;
const LARGEST_CHUNK: usize = 256 << 20;

/// What a call of a vendor's library takes besides its bytes and the latencies of its steps: a kernel's launch and its ranks' meeting.
const LIBRARY_NS: f64 = 20_000.0;

/// Chunks under way at a time.
const WINDOW: f64 = crate::algorithms::hetero::allreduce::WINDOW as f64;

/// What the model picks.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Elements per chunk.
    pub chunk: usize,
    /// Estimated time; 0 where the table decided and nothing was estimated.
    pub estimate_ns: f64,
}

/// An algorithm's cost on a machine.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// Nanoseconds that the busiest link is busy for a byte of payload.
    carried: f64,
    /// Nanoseconds for a byte of a chunk to go through all phases.
    filling: f64,
    /// Messages and kernels of the busiest rank for a chunk.
    messages: f64,
    /// Latencies that follow each other, in nanoseconds.
    hops: f64,
    /// Works in chunks.
    chunked: bool,
}

/// The algorithm and chunk for `call`, whose elements have `element_bytes`.
///
/// `None` when no algorithm can do the call.
pub fn choose(call: &Call, element_bytes: usize) -> Option<Choice> {
    let table = || {
        let algorithm = select(call, element_bytes, &Choices::default())?;
        Some(Choice { algorithm, chunk: usize::MAX, estimate_ns: 0.0 })
    };
    estimated(call, element_bytes, |_| true).or_else(table)
}

/// The cheapest schedule by groups, whatever others would cost, and its chunk; `None` where the machine is not known or no such
/// schedule can do the call.
pub fn choose_grouped(call: &Call, element_bytes: usize) -> Option<Choice> {
    cheapest(call, element_bytes, is_grouped)
}

/// The schedule with the vendors' libraries, whatever others would cost; `None` where there is none for the call.
pub fn choose_library(call: &Call, element_bytes: usize) -> Option<Choice> {
    cheapest(call, element_bytes, |name| name == "hetero_library")
}

/// The cheapest schedule among those with such a name that the model knows, or else the first such.
fn cheapest(call: &Call, element_bytes: usize, which: fn(&str) -> bool) -> Option<Choice> {
    call.topology.as_ref()?;
    let first = || {
        let algorithm = crate::algorithms::of(call.collective)
            .find(|algorithm| which(algorithm.name) && algorithm.can_do(call))?;
        Some(Choice { algorithm, chunk: usize::MAX, estimate_ns: 0.0 })
    };
    estimated(call, element_bytes, which).or_else(first)
}

/// The cheapest schedule among those with such a name, and its chunk; `None` where the model knows none.
fn estimated(call: &Call, element_bytes: usize, which: fn(&str) -> bool) -> Option<Choice> {
    let hierarchy = call.topology.as_ref()?;
    let bytes = payload_bytes(call, element_bytes);
    shapes(hierarchy, call, bytes)
        .into_iter()
        .filter(|(name, _)| which(name))
        .filter_map(|(name, shape)| Some((by_name(call.collective, name)?, shape)))
        .filter(|(algorithm, _)| algorithm.can_do(call))
        .map(|(algorithm, shape)| {
            let (chunk_bytes, estimate_ns) = best_chunk(hierarchy.topology(), &shape, bytes);
            let chunk = (chunk_bytes / element_bytes.max(1)).max(1);
            Choice { algorithm, chunk, estimate_ns }
        })
        .min_by(|a, b| a.estimate_ns.total_cmp(&b.estimate_ns))
}

/// Whether an algorithm works by the groups of the machine.
pub(crate) fn is_grouped(name: &str) -> bool {
    name.starts_with("hetero")
}

/// Chunk and time of an algorithm.
fn best_chunk(topology: &Topology, shape: &Shape, bytes: usize) -> (usize, f64) {
    let overhead = f64::from(topology.network.overhead_ns);
    let time = |chunk: usize| {
        let chunks = bytes.div_ceil(chunk.min(bytes.max(1))).max(1) as f64;
        let whole = bytes as f64 * shape.carried;
        // Messages cost the rank's time while links are busy with the others; only what exceeds them shows.
        let posts = chunks * shape.messages * overhead;
        let once = chunk.min(bytes) as f64 * shape.filling + shape.hops;
        // So many chunks at a time: no more than a window of them in the time that one takes.
        let windows = chunks / WINDOW * once;
        whole.max(posts).max(windows) + 0.005 * posts + once
    };
    if !shape.chunked {
        return (usize::MAX, time(usize::MAX));
    }
    std::iter::successors(Some(SMALLEST_CHUNK), |chunk| Some(chunk * 2))
        .take_while(|&chunk| chunk <= LARGEST_CHUNK)
        .map(|chunk| (chunk, time(chunk)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((usize::MAX, f64::INFINITY))
}

fn shapes(h: &Hierarchy, call: &Call, bytes: usize) -> Vec<(&'static str, Shape)> {
    let size = call.size();
    if size == 1 {
        return Vec::new();
    }
    let log = f64::from(size.next_power_of_two().trailing_zeros());
    let mut shapes = own_shapes(h, call, bytes, log);
    if !h.library_groups().is_empty() && !shapes.is_empty() {
        shapes.extend(library_shape(h, call).map(|shape| ("hetero_library", shape)));
    }
    shapes
}

/// Schedules without vendors' libraries.
fn own_shapes(h: &Hierarchy, call: &Call, bytes: usize, log: f64) -> Vec<(&'static str, Shape)> {
    let (t, size) = (h.topology(), call.size());
    match call.collective {
        Collective::Allreduce => vec![
            ("hetero", grouped(h, h.by_group())),
            ("hetero_cells", grouped(h, h.by_cell())),
            ("hetero_latency", leaders(h)),
            (
                "recursive_doubling",
                Shape {
                    carried: 0.0,
                    filling: log * slowest(t),
                    messages: 3.0 * log,
                    hops: log * hop(t, Route::Network),
                    chunked: false,
                },
            ),
        ],
        Collective::Bcast | Collective::Reduce => vec![
            ("hetero", striped(h)),
            ("hetero_chain", chain(h)),
            (
                "binomial",
                Shape {
                    carried: 0.0,
                    filling: log * slowest(t),
                    messages: 2.0 * log,
                    hops: log * hop(t, Route::Network),
                    chunked: false,
                },
            ),
        ],
        Collective::Barrier => {
            let cells = h.by_cell().units.len();
            let rounds = f64::from(cells.next_power_of_two().trailing_zeros());
            let inside = 2.0 * hop(t, Route::Peer);
            let busy = h.by_cell().units.iter().map(|u| u.ranks.len()).max().unwrap_or(1) as f64;
            vec![
                (
                    "hetero",
                    Shape {
                        hops: rounds * hop(t, Route::Network) + inside,
                        messages: 2.0 * busy,
                        ..Shape::default()
                    },
                ),
                (
                    "dissemination",
                    Shape {
                        hops: log * hop(t, Route::Network),
                        messages: 2.0 * log,
                        ..Shape::default()
                    },
                ),
            ]
        }
        // Blocks: large ones through all cards in chunks, small ones as the table says.
        _ => {
            let rate = 1.0 / slowest(t);
            let far = hop(t, Route::Network);
            // The vector collectives whose size all ranks know say it of all blocks together.
            let whole = matches!(call.layout, Layout::Blocks { .. })
                || call.collective == Collective::ReduceScatter;
            let block = if whole { bytes / size } else { bytes };
            let unknown = bytes == 0 && matches!(call.layout, Layout::Blocks { .. });
            if (block as f64) < rate * far && !unknown {
                return Vec::new();
            }
            let shape = Shape {
                carried: size as f64 / rate,
                filling: size as f64 / rate / 4.0,
                messages: 4.0 * size as f64,
                hops: 2.0 * far,
                chunked: true,
            };
            vec![("hetero", shape)]
        }
    }
}

/// Nanoseconds of a latency with both ranks' part in it, and the question and answer before.
fn hop(t: &Topology, route: Route) -> f64 {
    let inside = t.kinds.iter().map(|kind| kind.latency_ns).max().unwrap_or(0);
    let latency =
        if route == Route::Network && t.nodes.len() > 1 { t.network.latency_ns } else { inside };
    f64::from(latency) + 2.0 * f64::from(t.network.overhead_ns)
}

/// Nanoseconds a byte on the slowest way between nodes.
fn slowest(t: &Topology) -> f64 {
    let rate = |rank| {
        let device = t.device(rank).pcie_mb_s;
        if t.nodes.len() > 1 { device.min(t.nic_mb_s(rank)) } else { device }
    };
    1e3 / f64::from((0..t.len()).map(rate).min().unwrap_or(1).max(1))
}

/// Nanoseconds a byte of each kind of link of a rank: inside (fabric or PCIe) and across the border.
fn rates(h: &Hierarchy, unit: &Unit) -> (f64, f64, bool) {
    let rank = unit.ranks[0].index();
    let device = h.topology().device(rank);
    let fabric = device.fabric_mb_s > 0;
    let inside = if fabric { device.fabric_mb_s } else { device.pcie_mb_s };
    let border = unit.ranks.iter().map(|r| h.border_weight(r.index())).min().unwrap_or(1).max(1);
    (1e3 / f64::from(inside), 1e3 / f64::from(border), fabric)
}

/// Reduce-scatter, exchange, allgather: loads of a rank of each unit.
fn grouped(h: &Hierarchy, division: &Division) -> Shape {
    let t = h.topology();
    let units = division.units.len() as f64;
    let homes: f64 = division.units.iter().map(|unit| f64::from(unit.home)).sum();
    let launch = (0..t.len()).map(|rank| t.device(rank).launch_ns).max().unwrap_or(0);
    let launch = f64::from(launch);
    let mut worst = Shape { chunked: true, ..Shape::default() };
    for unit in &division.units {
        let (inside, border, fabric) = rates(h, unit);
        let (mut near, mut far, mut part) = (0.0, 0.0, 1.0);
        let (mut messages, mut hops, mut filling) = (0.0, 0.0, 0.0);
        let stages = if unit.library { &[] } else { &unit.stages[..] };
        if unit.library {
            let members = unit.ranks.len() as f64;
            let (near_load, far_load) = ring(t, unit);
            near += 2.0 * near_load;
            far += 2.0 * far_load;
            filling += 2.0 * (near_load * inside + far_load * border);
            messages += 2.0;
            hops += 2.0 * library_call(t, unit);
            part /= members;
        }
        for (stage, &members) in stages.iter().enumerate() {
            let share = part * (members as f64 - 1.0) / members as f64;
            let crosses = t.route(unit.peer(0, stage, 0).index(), unit.peer(0, stage, 1).index())
                == Route::Network;
            let (load, cost) = if crosses { (&mut far, border) } else { (&mut near, inside) };
            *load += 2.0 * share;
            filling += 2.0 * share * cost;
            // Sends and reductions there, sends back; receives take of another time.
            messages += 3.0 * (members as f64 - 1.0);
            hops +=
                launch + 2.0 * (hop(t, if crosses { Route::Network } else { Route::Peer }) * 3.0);
            part /= members as f64;
        }
        if units > 1.0 {
            let home = if units > 2.0 { f64::from(unit.home) / homes.max(1.0) } else { 0.0 };
            let exchanged = part * (1.0 + (units - 2.0) * home);
            far += exchanged;
            filling += exchanged * border * if units > 2.0 { 2.0 } else { 1.0 };
            // With homes: its own parts away, and as a home the others' added up and sent back.
            // Units of unequal size cut differently, which gives more parts the more units there are.
            messages +=
                (units - 1.0) * if units > 2.0 { 3.0 + (units - 4.0).max(0.0) / 3.0 } else { 2.0 };
            hops += 3.0 * hop(t, Route::Network);
        }
        // Without a fabric of its own, what crosses the border uses the same PCIe link.
        let pcie = 1e3 / f64::from(t.device(unit.ranks[0].index()).pcie_mb_s);
        let shared = if fabric { (near * inside).max(far * pcie) } else { (near + far) * pcie };
        worst.carried = worst.carried.max(shared).max(far * border);
        worst.filling = worst.filling.max(filling);
        worst.messages = worst.messages.max(messages);
        worst.hops = worst.hops.max(hops);
    }
    worst
}

/// What a vector puts on each rank's links when the vendor's library scatters or gathers it on a ring: on those inside, and on its share
/// of the node's card.
fn ring(t: &Topology, unit: &Unit) -> (f64, f64) {
    let share = (unit.ranks.len() as f64 - 1.0) / unit.ranks.len() as f64;
    let node = |rank: &crate::types::Rank| t.places[rank.index()].node;
    let first = node(&unit.ranks[0]);
    let here = unit.ranks.iter().filter(|rank| node(rank) == first).count();
    let far = if here == unit.ranks.len() { 0.0 } else { share / here as f64 };
    (share, far)
}

/// Nanoseconds of a call of the vendor's library besides its bytes.
fn library_call(t: &Topology, unit: &Unit) -> f64 {
    let spans = ring(t, unit).1 > 0.0;
    let latency =
        if spans { t.network.latency_ns } else { t.kind(unit.ranks[0].index()).latency_ns };
    LIBRARY_NS + (unit.ranks.len() as f64 - 1.0) * f64::from(latency)
}

/// The schedules with vendors' libraries inside their groups.
fn library_shape(h: &Hierarchy, call: &Call) -> Option<Shape> {
    let (t, division) = (h.topology(), h.by_library());
    let size = call.size() as f64;
    let calls =
        division.units.iter().filter(|u| u.library).map(|u| library_call(t, u)).fold(0.0, f64::max);
    let mut worst = Shape { chunked: true, messages: 4.0, ..Shape::default() };
    for unit in &division.units {
        let (inside, border, _) = rates(h, unit);
        let members = unit.ranks.len() as f64;
        let (near, far) = match call.collective {
            Collective::Allreduce => return Some(grouped(h, division)),
            Collective::Bcast => (1.0, (division.units.len() as f64 - 1.0) / members),
            // The root's own card takes what all other groups send.
            Collective::Reduce => (1.0, division.units.len() as f64 - 1.0),
            _ => (size, (size - members) / members),
        };
        worst.carried = worst.carried.max((near * inside).max(far * border));
        worst.filling = worst.filling.max(near * inside + far * border);
    }
    let blocks = !matches!(call.collective, Collective::Bcast | Collective::Reduce);
    // Every block is a call of its own.
    worst.hops = calls * if blocks { size } else { 2.0 } + 3.0 * hop(t, Route::Network);
    Some(worst)
}

fn leaders(h: &Hierarchy) -> Shape {
    let t = h.topology();
    let cells = &h.by_cell().units;
    let busy = cells.iter().map(|u| u.ranks.len()).max().unwrap_or(1) as f64;
    let rounds = f64::from(cells.len().next_power_of_two().trailing_zeros());
    let launch = (0..t.len()).map(|rank| t.device(rank).launch_ns).max().unwrap_or(0);
    Shape {
        carried: 0.0,
        filling: (rounds + 2.0 * (busy - 1.0)) * slowest(t),
        messages: 3.0 * busy + 3.0 * rounds,
        hops: rounds * (hop(t, Route::Network) + f64::from(launch))
            + 2.0 * hop(t, Route::Peer)
            + (busy - 1.0) * f64::from(launch),
        chunked: false,
    }
}

fn striped(h: &Hierarchy) -> Shape {
    let cells = &h.by_cell().units;
    let mut worst = Shape { chunked: true, ..Shape::default() };
    for unit in cells {
        let members = unit.ranks.len() as f64;
        let (inside, border, fabric) = rates(h, unit);
        let near = 2.0 * (members - 1.0) / members;
        let far = 1.0 / members;
        let carried = if fabric {
            (near * inside).max(far * border)
        } else {
            ((near + far) * inside).max(far * border)
        };
        worst.carried = worst.carried.max(carried);
        worst.filling = worst.filling.max(near * inside + far * border * cells.len() as f64);
        worst.messages = worst.messages.max(6.0 * members);
    }
    worst.hops = cells.len() as f64 * 3.0 * hop(h.topology(), Route::Network);
    worst
}

fn chain(h: &Hierarchy) -> Shape {
    let t = h.topology();
    let (size, cells) = (t.len() as f64, h.by_cell().units.len() as f64);
    let near =
        (0..t.len()).map(|rank| t.device(rank)).map(|d| d.pcie_mb_s.max(d.fabric_mb_s)).min();
    let near = 1e3 / f64::from(near.unwrap_or(1).max(1));
    Shape {
        carried: slowest(t),
        // A chunk is on one link at a time on its way along the chain.
        filling: (size - cells) * near + cells * slowest(t),
        messages: 3.0,
        hops: 3.0 * (cells * hop(t, Route::Network) + (size - cells) * hop(t, Route::Peer)),
        chunked: true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::verify::cases::machine;

    fn call(collective: Collective, count: usize, known: bool) -> Call {
        let mut call = Call::new(collective, 0, 16, Layout::uniform(count));
        call.topology = known.then(|| Arc::new(Hierarchy::new(machine(16, 2))));
        call
    }

    #[test]
    fn small_vectors_get_few_steps_and_large_ones_chunks() {
        let small = choose(&call(Collective::Allreduce, 2, true), 4).unwrap();
        assert!(
            ["hetero_latency", "recursive_doubling"].contains(&small.algorithm.name),
            "{small:?}"
        );
        let large = choose(&call(Collective::Allreduce, 64 << 20, true), 4).unwrap();
        assert!(large.algorithm.name.starts_with("hetero"), "{large:?}");
        assert!(large.chunk < 64 << 20);
        assert!(large.estimate_ns > small.estimate_ns);
    }

    #[test]
    fn the_vendors_libraries_are_for_large_vectors() {
        use crate::topology::{Identity, Vendor};
        let identity = |rank: u64| Identity {
            node: 1 + rank / 8,
            vendor: if rank < 8 { Vendor::Nvidia } else { Vendor::Amd },
            device: 1 + rank,
        };
        let identities: Vec<Identity> = (0..16).map(identity).collect();
        let hierarchy = Hierarchy::new(Topology::assumed(&identities));
        let hierarchy = Arc::new(hierarchy.with_libraries(&[Vendor::Nvidia, Vendor::Amd]));
        for collective in [
            Collective::Allreduce,
            Collective::Bcast,
            Collective::Allgather,
            Collective::ReduceScatterBlock,
        ] {
            let pick = |count| {
                let call = Call {
                    topology: Some(Arc::clone(&hierarchy)),
                    ..call(collective, count, false)
                };
                choose(&call, 4).unwrap().algorithm.name
            };
            assert_ne!(pick(16), "hetero_library", "{collective:?}");
            assert_eq!(pick(16 << 20), "hetero_library", "{collective:?}");
        }
    }

    #[test]
    fn without_a_topology_the_table_decides() {
        let choice = choose(&call(Collective::Allreduce, 2, false), 4).unwrap();
        assert_eq!(choice.algorithm.name, "recursive_doubling");
    }

    #[test]
    fn ordered_reductions_get_an_algorithm_that_keeps_order() {
        let mut ordered = call(Collective::Allreduce, 1 << 20, true);
        ordered.ordered = true;
        assert_eq!(choose(&ordered, 4).unwrap().algorithm.name, "recursive_doubling");
    }
}
