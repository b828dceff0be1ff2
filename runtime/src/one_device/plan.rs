//! The copies and reductions that make up a collective when one device reaches every rank's buffers.
//!
//! Each contribution is read once and each result written once, in rank order, so that results do not depend on which
//! rank comes first.

use hetccl_core::{Call, Collective, Region};

/// A rank's buffers where the device reaches them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) input: Region,
    pub(super) output: Region,
    /// The contribution lies in the output.
    pub(super) in_place: bool,
}

/// One piece of work; they run one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Copy {
        from: Region,
        into: Region,
    },
    /// `into` is the reduction of all inputs, from left to right.
    Reduce {
        inputs: Vec<Region>,
        into: Region,
    },
}

/// Whether [`plan`] knows a collective; the same on all ranks.
pub(super) fn knows(call: &Call) -> bool {
    let whole = matches!(
        call.collective,
        Collective::Allgather
            | Collective::Allreduce
            | Collective::Bcast
            | Collective::Gather
            | Collective::Reduce
            | Collective::Scatter
    );
    // In place, these would overwrite contributions before they have been read.
    let not_in_place = matches!(
        call.collective,
        Collective::Alltoall
            | Collective::Exscan
            | Collective::ReduceScatterBlock
            | Collective::Scan
    );
    call.group.remote_size.is_none() && (whole || (not_in_place && !call.in_place))
}

/// The work of a collective over all ranks' buffers, for elements of `element_bytes`.
pub(super) fn plan(call: &Call, ranks: &[Buffers], element_bytes: usize) -> Vec<Work> {
    let block = call.count() * element_bytes;
    let root = call.root_rank();
    let first = |rank: &Buffers| rank.input.slice(0, block);
    let mut work = Vec::new();
    match call.collective {
        Collective::Bcast => {
            for (_, buffers) in ranks.iter().enumerate().filter(|&(rank, _)| rank != root) {
                copy(&mut work, ranks[root].input.slice(0, block), buffers.output.slice(0, block));
            }
        }
        Collective::Allreduce => {
            let result = ranks[0].output.slice(0, block);
            reduce(&mut work, contributions(ranks, block), result);
            for other in &ranks[1..] {
                copy(&mut work, result, other.output.slice(0, block));
            }
        }
        Collective::Reduce => {
            let result = ranks[root].output.slice(0, block);
            reduce(&mut work, contributions(ranks, block), result);
        }
        Collective::Allgather => {
            for (i, from) in ranks.iter().enumerate() {
                let own =
                    if from.in_place { from.output.slice(i * block, block) } else { first(from) };
                for into in ranks {
                    copy(&mut work, own, into.output.slice(i * block, block));
                }
            }
        }
        Collective::Gather => {
            for (i, from) in ranks.iter().enumerate().filter(|(_, from)| !from.in_place) {
                copy(&mut work, first(from), ranks[root].output.slice(i * block, block));
            }
        }
        Collective::Scatter => {
            for (i, into) in ranks.iter().enumerate().filter(|(_, into)| !into.in_place) {
                let part = ranks[root].input.slice(i * block, block);
                copy(&mut work, part, into.output.slice(0, block));
            }
        }
        Collective::Alltoall => {
            for (i, from) in ranks.iter().enumerate() {
                for (j, into) in ranks.iter().enumerate() {
                    let there = into.output.slice(i * block, block);
                    copy(&mut work, from.input.slice(j * block, block), there);
                }
            }
        }
        Collective::ReduceScatterBlock => {
            for (i, into) in ranks.iter().enumerate() {
                let inputs = ranks.iter().map(|from| from.input.slice(i * block, block)).collect();
                reduce(&mut work, inputs, into.output.slice(0, block));
            }
        }
        Collective::Scan | Collective::Exscan => {
            let itself = usize::from(call.collective == Collective::Scan);
            for (i, into) in ranks.iter().enumerate().skip(1 - itself) {
                let lower = ranks[..i + itself].iter().map(first).collect();
                reduce(&mut work, lower, into.output.slice(0, block));
            }
        }
        _ => {}
    }
    work
}

fn contributions(ranks: &[Buffers], len_bytes: usize) -> Vec<Region> {
    let of = |rank: &Buffers| if rank.in_place { rank.output } else { rank.input };
    ranks.iter().map(|rank| of(rank).slice(0, len_bytes)).collect()
}

fn copy(work: &mut Vec<Work>, from: Region, into: Region) {
    if from.len_bytes > 0 && from.address != into.address {
        work.push(Work::Copy { from, into });
    }
}

fn reduce(work: &mut Vec<Work>, inputs: Vec<Region>, into: Region) {
    if into.len_bytes == 0 {
        return;
    }
    if let [only] = inputs[..] {
        return copy(work, only, into);
    }
    work.push(Work::Reduce { inputs, into });
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetccl_core::{Address, Layout, MemoryType, Rank, Root};

    const BLOCK: usize = 4;

    fn region(address: usize, len_bytes: usize) -> Region {
        Region { address: Address(address), len_bytes, memory: MemoryType::Cuda }
    }

    fn ranks(size: usize, in_place: bool) -> Vec<Buffers> {
        let len = BLOCK * size;
        let buffers = |r| Buffers {
            input: region(0x1000 * (r + 1), len),
            output: region(0x10_0000 * (r + 1), len),
            in_place,
        };
        (0..size).map(buffers).collect()
    }

    /// Runs a plan on memory where each input block is a set of one (rank, block), and says what the outputs hold.
    fn results(
        collective: Collective,
        size: usize,
        in_place: bool,
        root: usize,
    ) -> Vec<Vec<Vec<(usize, usize)>>> {
        let mut call = Call::new(collective, 0, size, Layout::uniform(1));
        call.in_place = in_place;
        if collective.rooted() {
            call.root = Root::Rank(Rank::from(root));
        }
        assert!(knows(&call));
        let ranks = ranks(size, in_place);
        let mut memory = std::collections::BTreeMap::<usize, Vec<(usize, usize)>>::new();
        for (r, buffers) in ranks.iter().enumerate() {
            let from = if in_place { buffers.output } else { buffers.input };
            for block in 0..size {
                memory.insert(from.address.0 + block * BLOCK, vec![(r, block)]);
            }
        }
        for work in plan(&call, &ranks, BLOCK) {
            let (inputs, into) = match work {
                Work::Copy { from, into } => (vec![from], into),
                Work::Reduce { inputs, into } => (inputs, into),
            };
            for offset in (0..into.len_bytes).step_by(BLOCK) {
                let read = |input: &Region| memory[&(input.address.0 + offset)].clone();
                let value = inputs.iter().flat_map(read).collect();
                memory.insert(into.address.0 + offset, value);
            }
        }
        let output = |buffers: &Buffers| {
            let block = |i| memory.get(&(buffers.output.address.0 + i * BLOCK)).cloned();
            (0..size).map(|i| block(i).unwrap_or_default()).collect()
        };
        ranks.iter().map(output).collect()
    }

    #[test]
    fn contributions_arrive_once_and_in_rank_order() {
        for size in 1..6 {
            let all = |block| (0..size).map(|r| (r, block)).collect::<Vec<_>>();
            for in_place in [false, true] {
                for output in results(Collective::Allreduce, size, in_place, 0) {
                    assert_eq!(output[0], all(0));
                }
                let gathered = results(Collective::Allgather, size, in_place, 0);
                for output in gathered {
                    let own = |i| if in_place { (i, i) } else { (i, 0) };
                    assert_eq!(output, (0..size).map(|i| vec![own(i)]).collect::<Vec<_>>());
                }
            }
            for (j, output) in results(Collective::Alltoall, size, false, 0).iter().enumerate() {
                assert_eq!(output, &(0..size).map(|i| vec![(i, j)]).collect::<Vec<_>>());
            }
            for (j, output) in
                results(Collective::ReduceScatterBlock, size, false, 0).iter().enumerate()
            {
                assert_eq!(output[0], all(j));
            }
            for (j, output) in results(Collective::Scan, size, false, 0).iter().enumerate() {
                assert_eq!(output[0], all(0)[..=j]);
            }
            for (j, output) in results(Collective::Exscan, size, false, 0).iter().enumerate() {
                assert_eq!(output[0], all(0)[..j]);
            }
            for root in 0..size {
                assert_eq!(results(Collective::Reduce, size, false, root)[root][0], all(0));
                let gathered = &results(Collective::Gather, size, false, root)[root];
                assert_eq!(gathered, &(0..size).map(|i| vec![(i, 0)]).collect::<Vec<_>>());
                let scattered = results(Collective::Scatter, size, false, root);
                let bcast = results(Collective::Bcast, size, false, root);
                for j in 0..size {
                    assert_eq!(scattered[j][0], vec![(root, j)]);
                    assert!(j == root || bcast[j][0] == vec![(root, 0)]);
                }
            }
        }
    }
}
