//! What a schedule is compared with.
//!
//! - *Flat ring*: the ring (for what has none, the flat algorithm with the least traffic) over ranks in their order.
//! - *Host relay*: every rank copies its vector to host memory, where one process a node adds them up, takes part in a ring between
//!   nodes, and hands the result back; one phase after the other, as those do it who have no GPU-aware transport.
//! - *Single owner*: FlagCX's scheme as its documentation tells it. Groups of one size: a reduce-scatter in each, an exchange of
//!   what ranks with the same place own, and an allreduce in each group, which adds up (slots that a rank does not own are zero).
//!   Other groups: a reduce to one rank in each, an exchange between those, and a bcast. A phase begins when the one before has ended.

use std::sync::Arc;

use hetccl_core::algorithms::by_name;
use hetccl_core::algorithms::hetero::stages::{self, Arena};
use hetccl_core::topology::{Device, Hierarchy, Place, Topology, Unit, Vendor};
use hetccl_core::{Block, Buffer, Builder, Call, Collective, Layout, Rank, Schedule, Span};

use crate::timed::{Program, run};

/// Bytes of an element.
const ELEMENT: usize = 4;

/// The flat algorithm that a collective is compared with.
pub fn flat_name(collective: Collective) -> &'static str {
    use Collective::*;
    match collective {
        Allreduce | Allgather | ReduceScatter | ReduceScatterBlock => "ring",
        Bcast => "pipelined_chain",
        Reduce => "rabenseifner",
        Alltoall => "pairwise",
        Barrier => "dissemination",
        _ => "linear",
    }
}

/// Time of the flat algorithm, the best of a few chunks.
pub fn flat_us(
    topology: &Topology,
    calls: &dyn Fn(usize, usize) -> Call,
    collective: Collective,
) -> Option<f64> {
    let algorithm = by_name(collective, flat_name(collective))?;
    let calls: Vec<Call> = (0..topology.len()).map(|rank| calls(rank, usize::MAX)).collect();
    let chunks: &[usize] =
        if topology.len() > 256 { &[usize::MAX] } else { &[usize::MAX, 1 << 18] };
    let time = |&chunk: &usize| {
        let build = |rank: usize| (algorithm.build)(&Call { chunk, ..calls[rank].clone() });
        run(Program::new(topology.len(), ELEMENT, build), topology, |_| ()).us()
    };
    chunks.iter().map(time).min_by(f64::total_cmp)
}

/// Time of the relay through host memory.
pub fn host_relay_us(topology: &Topology, count: usize, reduce_mb_s: u32) -> f64 {
    let mut relayed = topology.clone();
    for kind in &mut relayed.kinds {
        kind.devices.push(Device {
            vendor: Vendor::Host,
            pcie_mb_s: kind.host_mb_s / 2,
            fabric_mb_s: 0,
            reduce_mb_s,
            copy_mb_s: reduce_mb_s,
            launch_ns: 0,
            nic: 0,
            gpu_direct: true,
        });
    }
    let mut nodes: Vec<u32> = topology.places.iter().map(|place| place.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let size = topology.len();
    for &node in &nodes {
        let device = relayed.kinds[usize::from(relayed.nodes[node as usize])].devices.len() - 1;
        relayed.places.push(Place { node, device: device as u16 });
    }
    let relay = |rank: usize| size + nodes.partition_point(|&n| n < topology.places[rank].node);
    let whole = Span::new(Buffer::Input, 0, count);
    let build = |rank: usize| -> Schedule {
        let mut b = Builder::new(true);
        if rank < size {
            b.send(Rank::from(relay(rank)), whole);
            b.recv(Rank::from(relay(rank)), whole);
            return b.finish();
        }
        let mine: Vec<usize> = (0..size).filter(|&peer| relay(peer) == rank).collect();
        let place = b.scratch(count);
        for (i, &peer) in mine.iter().enumerate() {
            if i == 0 {
                b.recv(Rank::from(peer), whole);
            } else {
                b.recv(Rank::from(peer), place);
                b.reduce(whole, place, whole);
            }
        }
        ring(&mut b, rank - size, nodes.len(), size, count);
        for &peer in &mine {
            b.send(Rank::from(peer), whole);
        }
        b.finish()
    };
    run(Program::new(relayed.len(), ELEMENT, build), &relayed, |_| ()).us()
}

/// An allreduce around the ring of ranks `first..first + size`, in place.
fn ring(b: &mut Builder, rank: usize, size: usize, first: usize, count: usize) {
    let block = |index: usize| {
        let (start, end) = (index % size * count / size, (index % size + 1) * count / size);
        Span::new(Buffer::Output, start, end - start)
    };
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let (right, left) = (Rank::from(first + right), Rank::from(first + left));
    let places = [b.scratch(count / size + 1), b.scratch(count / size + 1)];
    for step in 0..2 * (size - 1) {
        let (out, into) = (block(rank + 2 * size - step), block(rank + 2 * size - step - 1));
        b.send(right, out);
        if step < size - 1 {
            let place = places[step % 2].part(0, into.len);
            b.recv(left, place);
            b.reduce(place, into, into);
        } else {
            b.recv(left, into);
        }
    }
}

/// Time of the single-owner scheme.
pub fn single_owner_us(hierarchy: &Arc<Hierarchy>, count: usize) -> f64 {
    let topology = hierarchy.topology();
    // A vendor group is one unit when its nodes are alike, and several otherwise: then it has several owners here.
    let division = hierarchy.by_group();
    let sizes: Vec<usize> = division.units.iter().map(|unit| unit.ranks.len()).collect();
    let equal = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    let whole = Block { start: 0, len: count };
    let data = Span::new(Buffer::Output, 0, count);
    let phase = |phase: usize| {
        let build = |rank: usize| -> Schedule {
            let mut b = Builder::new(true);
            let (unit, index) = division.of(rank);
            let seat = division.seats[rank];
            let own = unit.own(index, whole);
            match (phase, equal) {
                (0, true) => scatter(&mut b, unit, index, whole),
                (0, false) => {
                    scatter(&mut b, unit, index, whole);
                    to_owner(&mut b, unit, index, whole);
                }
                (1, _) => {
                    let swapped =
                        if equal { Span::new(Buffer::Output, own.start, own.len) } else { data };
                    let mine = equal || index == 0;
                    for (number, other) in division.units.iter().enumerate() {
                        if mine && number != seat.unit {
                            let place = b.scratch(swapped.len);
                            b.recv(other.ranks[index], place);
                            b.send(other.ranks[index], swapped);
                        }
                    }
                }
                (2, true) => {
                    scatter(&mut b, unit, index, whole);
                    stages::allgather(
                        &mut b,
                        (unit, index),
                        whole,
                        Buffer::Output,
                        &mut Vec::new(),
                    );
                }
                _ => {
                    // The owner adds up and hands out: scatter and allgather.
                    if index == 0 {
                        let place = b.scratch(count);
                        b.reduce(data, place, data);
                    }
                    deal(&mut b, unit, index, whole);
                    stages::allgather(
                        &mut b,
                        (unit, index),
                        whole,
                        Buffer::Output,
                        &mut Vec::new(),
                    );
                }
            }
            b.finish()
        };
        run(Program::new(topology.len(), ELEMENT, build), topology, |_| ()).us()
    };
    (0..3).map(phase).sum()
}

fn scatter(b: &mut Builder, unit: &Unit, index: usize, whole: Block) {
    let mut arena = Arena::new(b, stages::reduce_scatter_scratch((unit, index), whole));
    stages::reduce_scatter(b, (unit, index), whole, Buffer::Output, &mut arena, &mut Vec::new());
}

fn to_owner(b: &mut Builder, unit: &Unit, index: usize, whole: Block) {
    let part = |index| {
        let own = unit.own(index, whole);
        Span::new(Buffer::Output, own.start, own.len)
    };
    if index > 0 {
        b.send(unit.ranks[0], part(index));
        return;
    }
    for other in 1..unit.ranks.len() {
        b.recv(unit.ranks[other], part(other));
    }
}

fn deal(b: &mut Builder, unit: &Unit, index: usize, whole: Block) {
    let part = |index| {
        let own = unit.own(index, whole);
        Span::new(Buffer::Output, own.start, own.len)
    };
    if index > 0 {
        b.recv(unit.ranks[0], part(index));
        return;
    }
    for other in 1..unit.ranks.len() {
        b.send(unit.ranks[other], part(other));
    }
}

/// A call of one rank; `count` as in [`Layout`].
pub fn call(collective: Collective, hierarchy: &Arc<Hierarchy>, rank: usize, count: usize) -> Call {
    let mut call = Call::new(collective, rank, hierarchy.topology().len(), Layout::uniform(count));
    if collective.rooted() {
        call.root = hetccl_core::Root::Rank(Rank(0));
    }
    call.topology = Some(Arc::clone(hierarchy));
    call
}
