//! Rates and times of memories and links. Rates are in GB/s (10^9 bytes per second), times in microseconds.

use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use serde::Serialize;

use super::layout::Layout;
use crate::library::Library;
use crate::library::mpi::{Group, Mpi};
use crate::memory::{Buffer, Memory, Place};

/// More than caches hold.
const BYTES: usize = 64 << 20;
/// What a link's rate is measured with.
const MESSAGE_BYTES: usize = 16 << 20;
const SMALL_BYTES: usize = 8;
const ROUNDS: usize = 5;
/// Small messages in a round.
const MESSAGES: u32 = 200;

/// Of a device, or of host memory as one rank uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct DeviceRates {
    /// Read and written together.
    pub(super) memory_gb_s: f64,
    /// To or from pinned host memory, whichever is slower.
    pub(super) pcie_gb_s: f64,
    /// A copy of few bytes, until it is done.
    pub(super) launch_us: f64,
}

/// Between two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct NetworkRates {
    /// Of a message of 8 bytes, from call to receipt.
    pub(super) one_way_us: f64,
    /// All ranks of a node at once, one way, host memory.
    pub(super) node_gb_s: f64,
    /// The same with the ranks' own buffers.
    pub(super) own_gb_s: f64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Measured {
    /// By node and device.
    pub(super) devices: Vec<Vec<DeviceRates>>,
    /// By node: its ranks together read and write host memory.
    pub(super) host_gb_s: Vec<f64>,
    /// By node: a message of 8 bytes between two of its ranks; none for a rank alone.
    pub(super) inside_us: Vec<Option<f64>>,
    /// By node, with its partner; none where there is but one node.
    pub(super) network: Vec<Option<NetworkRates>>,
    /// What a message of 8 bytes takes of its sender.
    pub(super) overhead_us: f64,
}

/// Measures. All ranks call, and all get the result.
///
/// # Errors
/// Of MPI or a driver.
pub(super) fn measure(
    mpi: &mut Mpi,
    place: &Place,
    layout: &Layout,
    bar: &ProgressBar,
) -> Result<Measured> {
    let rounds = pairings(layout.nodes.len());
    let turns = layout.nodes.iter().map(|node| node.devices.len()).max().unwrap_or(0);
    bar.set_length((turns + 2 + rounds.len()) as u64);
    let (node, device) = layout.place(mpi.rank);
    let leads = layout.nodes[node].devices[device].ranks[0] == mpi.rank;
    let mut own = DeviceRates::default();
    for turn in 0..turns {
        bar.set_message(format!("memory of device {turn} of every node"));
        mpi.largest(0.0)?;
        if leads && device == turn {
            own = device_rates(place)?;
        }
        bar.inc(1);
    }
    let host = Place::new(Memory::Host, 0)?;
    bar.set_message("host memory");
    let copies = host_copies(mpi, &host)?;
    bar.inc(1);
    bar.set_message("links inside the nodes");
    let mut links = Links { host: &host, own: place, inside: None, overhead: None, network: None };
    links.inside(mpi, layout)?;
    bar.inc(1);
    for pairs in &rounds {
        bar.set_message("links between nodes");
        links.between(mpi, layout, pairs)?;
        bar.inc(1);
    }
    let network = links.network.unwrap_or_default();
    let numbers = [
        own.memory_gb_s,
        own.pcie_gb_s,
        own.launch_us,
        2.0 * copies,
        links.inside.unwrap_or(0.0),
        links.overhead.unwrap_or(0.0),
        network.one_way_us,
        network.node_gb_s,
        network.own_gb_s,
    ];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let all = mpi.gather(&bytes)?;
    Ok(assemble(layout, &decode(&all, numbers.len())?))
}

/// Every rank's numbers.
fn decode(bytes: &[u8], numbers: usize) -> Result<Vec<Vec<f64>>> {
    let number = |chunk: &[u8]| {
        Ok(f64::from_ne_bytes(chunk.try_into().context("a rank's numbers are cut off")?))
    };
    bytes.chunks(8 * numbers).map(|rank| rank.chunks(8).map(number).collect()).collect()
}

/// From every rank's numbers, as [`measure`] lists them.
fn assemble(layout: &Layout, ranks: &[Vec<f64>]) -> Measured {
    let mut measured = Measured::default();
    for node in &layout.nodes {
        let of = |device: &super::layout::Device| {
            let numbers = &ranks[device.ranks[0]];
            DeviceRates { memory_gb_s: numbers[0], pcie_gb_s: numbers[1], launch_us: numbers[2] }
        };
        measured.devices.push(node.devices.iter().map(of).collect());
        let all = node.ranks();
        let largest = |i: usize| all.iter().map(|&rank| ranks[rank][i]).fold(0.0, f64::max);
        measured.host_gb_s.push(all.iter().map(|&rank| ranks[rank][3]).sum());
        measured.inside_us.push(Some(largest(4)).filter(|&time| time > 0.0));
        let (one_way_us, node_gb_s, own_gb_s) = (largest(6), largest(7), largest(8));
        let network = NetworkRates { one_way_us, node_gb_s, own_gb_s };
        measured.network.push(Some(network).filter(|network| network.node_gb_s > 0.0));
    }
    measured.overhead_us = ranks.iter().map(|numbers| numbers[5]).fold(0.0, f64::max);
    measured
}

/// Rounds of pairs of nodes in which each node has a partner once; with an odd number the last one's partner is the first.
fn pairings(nodes: usize) -> Vec<Vec<(usize, usize)>> {
    let mut rounds: Vec<Vec<(usize, usize)>> = Vec::new();
    if nodes > 1 {
        rounds.push((0..nodes / 2).map(|i| (2 * i, 2 * i + 1)).collect());
        if nodes % 2 == 1 {
            rounds.push(vec![(nodes - 1, 0)]);
        }
    }
    rounds
}

/// The least seconds of some rounds.
fn least(mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    round()?;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best.max(1e-9))
}

fn gb_s(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

fn device_rates(place: &Place) -> Result<DeviceRates> {
    let (mut from, mut into) = (place.buffer(BYTES)?, place.buffer(BYTES)?);
    let mut pinned = place.pinned(BYTES)?;
    // Fresh host memory is one page of zeros, which caches hold.
    from.put(pinned.bytes())?;
    let copy = least(|| into.copy_from(&from, BYTES))?;
    let launch = least(|| into.copy_from(&from, SMALL_BYTES))?;
    let put = least(|| into.put(pinned.bytes()))?;
    let get = least(|| into.get(pinned.bytes()))?;
    Ok(DeviceRates {
        memory_gb_s: 2.0 * gb_s(BYTES, copy),
        pcie_gb_s: gb_s(BYTES, put.max(get)),
        launch_us: if place.pci_bus_id()?.is_some() { launch * 1e6 } else { 0.0 },
    })
}

/// Copied bytes per time while all ranks copy.
fn host_copies(mpi: &mut Mpi, host: &Place) -> Result<f64> {
    let (mut from, mut into) = (host.buffer(BYTES)?, host.buffer(BYTES)?);
    from.put(&vec![1; BYTES])?;
    into.copy_from(&from, BYTES)?;
    mpi.largest(0.0)?;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        into.copy_from(&from, BYTES)?;
    }
    let mine = start.elapsed().as_secs_f64();
    Ok(gb_s(ROUNDS * BYTES, mpi.largest(mine)?))
}

/// What a rank has measured of its links.
struct Links<'a> {
    host: &'a Place,
    own: &'a Place,
    inside: Option<f64>,
    overhead: Option<f64>,
    network: Option<NetworkRates>,
}

impl Links<'_> {
    /// Between the first two ranks of each node.
    fn inside(&mut self, mpi: &Mpi, layout: &Layout) -> Result<()> {
        let (node, _) = layout.place(mpi.rank);
        let ranks = layout.nodes[node].ranks();
        let taken = ranks.len() > 1 && ranks[..2].contains(&mpi.rank);
        let Some(pair) = mpi.split(taken.then_some(node))? else { return Ok(()) };
        let small = self.host.buffer(SMALL_BYTES)?;
        self.inside = Some(one_way(&pair, &small)?);
        self.overhead = Some(overhead(&pair, &small)?);
        Ok(())
    }

    /// Between the ranks of pairs of nodes, one on each: first between two, then all at once.
    fn between(&mut self, mpi: &mut Mpi, layout: &Layout, pairs: &[(usize, usize)]) -> Result<()> {
        let (node, _) = layout.place(mpi.rank);
        let found = pairs.iter().position(|&(a, b)| a == node || b == node);
        let seat = layout.nodes[node].ranks().iter().position(|&rank| rank == mpi.rank);
        let color = found.zip(seat).and_then(|(pair, seat)| {
            let (a, b) = pairs[pair];
            let partners = layout.nodes[a].ranks().len().min(layout.nodes[b].ranks().len());
            (seat < partners).then_some((pair, seat, partners))
        });
        let mut network = NetworkRates::default();
        {
            let first = color.filter(|&(_, seat, _)| seat == 0).map(|(pair, ..)| pair);
            if let Some(pair) = mpi.split(first)? {
                let small = self.host.buffer(SMALL_BYTES)?;
                network.one_way_us = one_way(&pair, &small)?;
                self.overhead = Some(overhead(&pair, &small)?);
            }
        }
        for own in [false, true] {
            let number = color.map(|(pair, seat, _)| pair * mpi.size + seat);
            let rate = match mpi.split(number)? {
                Some(pair) => {
                    let buffer = if own { self.own } else { self.host }.buffer(MESSAGE_BYTES)?;
                    rate(&pair, &buffer)?
                }
                None => 0.0,
            };
            // Every pair's, so that a node's can be added up.
            let bytes = mpi.gather(&rate.to_ne_bytes())?;
            let rates = decode(&bytes, 1)?;
            let total = layout.nodes[node].ranks().iter().map(|&rank| rates[rank][0]).sum();
            if own {
                network.own_gb_s = total;
            } else {
                network.node_gb_s = total;
            }
        }
        if found.is_some() {
            self.network.get_or_insert(network);
        }
        Ok(())
    }
}

/// Microseconds of a small message, from call to receipt: half of its way there and back.
fn one_way(pair: &Group, small: &Buffer) -> Result<f64> {
    pair.barrier()?;
    let seconds = least(|| {
        for _ in 0..MESSAGES {
            pair.bcast(small, SMALL_BYTES, 0)?;
            pair.bcast(small, SMALL_BYTES, 1)?;
        }
        Ok(())
    })?;
    Ok(seconds * 1e6 / f64::from(2 * MESSAGES))
}

/// Microseconds that each of many small messages takes when nobody answers.
fn overhead(pair: &Group, small: &Buffer) -> Result<f64> {
    pair.barrier()?;
    let seconds = least(|| {
        for _ in 0..MESSAGES {
            pair.bcast(small, SMALL_BYTES, 0)?;
        }
        pair.bcast(small, SMALL_BYTES, 1)
    })?;
    Ok(seconds * 1e6 / f64::from(MESSAGES + 1))
}

/// Of long messages one way, each answered by a short one.
fn rate(pair: &Group, buffer: &Buffer) -> Result<f64> {
    pair.barrier()?;
    let seconds = least(|| {
        pair.bcast(buffer, MESSAGE_BYTES, 0)?;
        pair.bcast(buffer, SMALL_BYTES, 1)
    })?;
    Ok(gb_s(MESSAGE_BYTES, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_partner() {
        assert!(pairings(1).is_empty());
        for nodes in 2..9 {
            let mut seen: Vec<usize> =
                pairings(nodes).iter().flatten().flat_map(|&(a, b)| [a, b]).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, (0..nodes).collect::<Vec<_>>());
        }
    }
}
