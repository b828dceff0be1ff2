//! What MPI demands of the outputs.

use super::execute::{Outcome, process_of};
use super::value::Value;
use crate::call::{Block, Call, Collective, Layout, Root};
use crate::schedule::{Buffer, Schedule};

/// Elements of Input and Output that a rank brings.
pub fn sizes(call: &Call) -> (usize, usize) {
    use Collective::*;
    let root = is_root(call);
    let inter = call.group.remote_size.is_some();
    let takes_part = call.root != Root::Elsewhere;
    let sends = takes_part && !(inter && root);
    match call.collective {
        Barrier => (0, 0),
        Allreduce | Scan | Exscan => (absent_if(call.in_place, call.count()), call.count()),
        Bcast => match (takes_part, root) {
            (false, _) => (0, 0),
            (true, true) => (call.count(), 0),
            (true, false) => (0, call.count()),
        },
        Reduce => (
            absent_if(!sends || (root && call.in_place), call.count()),
            absent_if(!root, call.count()),
        ),
        ReduceScatter | ReduceScatterBlock => {
            let last = call.send_block(call.size() - 1);
            let total = last.start + last.len;
            if call.in_place { (0, total) } else { (total, call.send_block(call.rank()).len) }
        }
        Gather | Gatherv => (
            if sends && !(root && call.in_place) { call.send_block(0).len } else { 0 },
            if root { blocks_end(peers(call), |i| call.recv_block(i)) } else { 0 },
        ),
        Scatter | Scatterv => (
            if root { blocks_end(peers(call), |i| call.send_block(i)) } else { 0 },
            if sends && !(root && call.in_place) { call.recv_block(0).len } else { 0 },
        ),
        Allgather | Allgatherv => (
            if call.in_place { 0 } else { call.send_block(0).len },
            blocks_end(peers(call), |i| call.recv_block(i)),
        ),
        Alltoall | Alltoallv | Alltoallw => (
            if call.in_place { 0 } else { blocks_end(peers(call), |i| call.send_block(i)) },
            blocks_end(peers(call), |i| call.recv_block(i)),
        ),
        NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv
        | NeighborAlltoallw => match &call.layout {
            Layout::Blocks { send, recv } => {
                (blocks_end(send.len(), |i| send[i]), blocks_end(recv.len(), |i| recv[i]))
            }
            Layout::Uniform { .. } => (0, 0),
        },
    }
}

fn absent_if(absent: bool, len: usize) -> usize {
    if absent { 0 } else { len }
}

fn blocks_end(n: usize, block: impl Fn(usize) -> Block) -> usize {
    (0..n).map(|i| block(i).start + block(i).len).max().unwrap_or(0)
}

fn is_root(call: &Call) -> bool {
    match call.root {
        Root::Here => true,
        Root::Rank(rank) => call.group.remote_size.is_none() && rank == call.group.rank,
        Root::None | Root::Elsewhere => false,
    }
}

/// Ranks whose blocks a rank holds.
fn peers(call: &Call) -> usize {
    if call.group.remote_size.is_some() { call.group.remote_len() } else { call.size() }
}

/// What an output element must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As it was.
    Untouched,
    /// An initial element: of this process, in this buffer, at this index.
    Copy(usize, Buffer, usize),
    /// Element `.2` of the contributions of these processes, in this order; each lies in the buffer beside it.
    Sum(Vec<usize>, Vec<Buffer>, usize),
    /// MPI does not say.
    Anything,
}

/// Compares every buffer of every process; the error names the process.
pub(super) fn compare(
    calls: &[Call],
    schedules: &[Schedule],
    run: &Outcome,
) -> Result<(), (usize, String)> {
    for (process, call) in calls.iter().enumerate() {
        let wanted = wanted(calls, process);
        for (index, &found) in run.memory[process].output.iter().enumerate() {
            let expected = wanted.get(index).unwrap_or(&Wanted::Untouched);
            matches(call.ordered, run, process, index, expected, found)
                .map_err(|what| (process, what))?;
        }
        if !schedules[process].in_place() {
            untouched(run, process).map_err(|what| (process, what))?;
        }
        if call.collective == Collective::Allreduce && call.group.remote_size.is_none() {
            let first = &run.memory[0].output;
            if let Some(index) =
                (0..call.count()).find(|&i| first[i] != run.memory[process].output[i])
            {
                return Err((
                    process,
                    format!("element {index} is added up differently than on rank 0"),
                ));
            }
        }
    }
    Ok(())
}

fn untouched(run: &Outcome, process: usize) -> Result<(), String> {
    for (index, &found) in run.memory[process].input.iter().enumerate() {
        if run.values.leaves(found) != [(process, Buffer::Input, index)] {
            return Err(format!("input element {index} was overwritten"));
        }
    }
    Ok(())
}

fn matches(
    ordered: bool,
    run: &Outcome,
    process: usize,
    index: usize,
    expected: &Wanted,
    found: Value,
) -> Result<(), String> {
    let mut leaves = run.values.leaves(found);
    let mut wanted: Vec<(usize, Buffer, usize)> = match expected {
        Wanted::Anything => return Ok(()),
        Wanted::Untouched => vec![(process, Buffer::Output, index)],
        Wanted::Copy(process, buffer, index) => vec![(*process, *buffer, *index)],
        Wanted::Sum(processes, buffers, element) => {
            processes.iter().zip(buffers).map(|(&p, &buffer)| (p, buffer, *element)).collect()
        }
    };
    if !ordered {
        leaves.sort_unstable();
        wanted.sort_unstable();
    }
    if leaves == wanted {
        return Ok(());
    }
    Err(format!(
        "output element {index} should be {expected:?}, and is {}",
        run.values.describe(found)
    ))
}

/// Where a rank's contribution to a reduction lies.
fn contribution(call: &Call) -> Buffer {
    let in_place = call.in_place && (!call.collective.rooted() || is_root(call));
    if in_place { Buffer::Output } else { Buffer::Input }
}

/// What MPI demands of each element of a process's output.
pub fn wanted(calls: &[Call], process: usize) -> Vec<Wanted> {
    use Collective::*;
    let call = &calls[process];
    let mut out = vec![Wanted::Untouched; sizes(call).1];
    let group: Vec<usize> = source_group(calls, process);
    match call.collective {
        Barrier => {}
        Allreduce => fill_sums(&mut out, calls, &group, 0),
        Scan => fill_sums(&mut out, calls, &group[..=call.rank()], 0),
        Exscan if call.rank() > 0 => fill_sums(&mut out, calls, &group[..call.rank()], 0),
        Exscan => {}
        Reduce if is_root(call) => fill_sums(&mut out, calls, &group, 0),
        Reduce => {}
        ReduceScatter | ReduceScatterBlock => {
            let own = call.send_block(call.rank());
            fill_sums(&mut out[..own.len], calls, &group, own.start);
            out[own.len..].fill(Wanted::Anything);
        }
        Bcast => {
            if let Some(root) = root_process(calls, process).filter(|&root| root != process) {
                for (i, expected) in out.iter_mut().enumerate() {
                    *expected = Wanted::Copy(root, Buffer::Input, i);
                }
            }
        }
        Gather | Gatherv if is_root(call) => {
            for (i, &source) in group.iter().enumerate() {
                let into = call.recv_block(i);
                let own = call.in_place && source == process;
                place(&mut out, into, source, if own { None } else { Some((Buffer::Input, 0)) });
            }
        }
        Gather | Gatherv => {}
        Scatter | Scatterv => {
            if let Some(root) = root_process(calls, process)
                && !(call.in_place && root == process)
                && !(call.root == Root::Here)
            {
                let from = calls[root].send_block(call.rank());
                place(&mut out, call.recv_block(0), root, Some((Buffer::Input, from.start)));
            }
        }
        Allgather | Allgatherv => {
            for (i, &source) in group.iter().enumerate() {
                let theirs = &calls[source];
                let from = if theirs.in_place {
                    (Buffer::Output, theirs.recv_block(i).start)
                } else {
                    (Buffer::Input, 0)
                };
                place(&mut out, call.recv_block(i), source, Some(from));
            }
        }
        Alltoall | Alltoallv | Alltoallw => {
            for (i, &source) in group.iter().enumerate() {
                let theirs = &calls[source];
                let from = if theirs.in_place {
                    (Buffer::Output, theirs.recv_block(call.rank()).start)
                } else {
                    (Buffer::Input, theirs.send_block(call.rank()).start)
                };
                place(&mut out, call.recv_block(i), source, Some(from));
            }
        }
        NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv
        | NeighborAlltoallw => expect_neighbours(calls, call, &mut out),
    }
    out
}

/// The processes whose contributions reach this one: its own group, or the remote one.
fn source_group(calls: &[Call], process: usize) -> Vec<usize> {
    let call = &calls[process];
    match call.group.remote_size {
        None => (0..calls.len()).collect(),
        Some(remote) => {
            (0..remote as usize).map(|i| process_of(calls, process, call.group.remote(i))).collect()
        }
    }
}

/// The root, for a process that gets something from it.
fn root_process(calls: &[Call], process: usize) -> Option<usize> {
    let call = &calls[process];
    match (call.root, call.group.remote_size) {
        (Root::Rank(rank), None) => Some(rank.index()),
        (Root::Rank(rank), Some(_)) => {
            Some(process_of(calls, process, call.group.remote(rank.index())))
        }
        _ => None,
    }
}

fn fill_sums(out: &mut [Wanted], calls: &[Call], processes: &[usize], first: usize) {
    let buffers: Vec<Buffer> = processes.iter().map(|&p| contribution(&calls[p])).collect();
    for (i, expected) in out.iter_mut().enumerate() {
        *expected = Wanted::Sum(processes.to_vec(), buffers.clone(), first + i);
    }
}

/// A block that is copied from `from` of a process, or stays as it is.
fn place(out: &mut [Wanted], into: Block, source: usize, from: Option<(Buffer, usize)>) {
    for i in 0..into.len {
        out[into.start + i] = match from {
            Some((buffer, start)) => Wanted::Copy(source, buffer, start + i),
            None => Wanted::Untouched,
        };
    }
}

fn expect_neighbours(calls: &[Call], call: &Call, out: &mut [Wanted]) {
    let Some(neighbours) = &call.neighbours else { return };
    for (index, source) in neighbours.sources.iter().enumerate() {
        let Some(source) = *source else { continue };
        let theirs = &calls[source.index()];
        let Some(their_neighbours) = &theirs.neighbours else { continue };
        let earlier = neighbours.sources[..index].iter().filter(|&&s| s == Some(source)).count();
        let destination = if neighbours.cartesian {
            Some(index ^ 1)
        } else {
            let to_me = |&(_, d): &(usize, &Option<crate::Rank>)| *d == Some(call.group.rank);
            their_neighbours
                .destinations
                .iter()
                .enumerate()
                .filter(to_me)
                .nth(earlier)
                .map(|(d, _)| d)
        };
        let Some(destination) = destination else { continue };
        let from = match call.collective {
            Collective::NeighborAllgather | Collective::NeighborAllgatherv => theirs.send_block(0),
            _ => theirs.send_block(destination),
        };
        place(out, call.recv_block(index), source.index(), Some((Buffer::Input, from.start)));
    }
}
