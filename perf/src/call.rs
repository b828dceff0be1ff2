//! A collective as it is measured: how much each rank gives and gets, what the result must be, and what counts as its
//! bandwidth.

use half::{bf16, f16};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Collective {
    Allreduce,
    Reduce,
    Bcast,
    Allgather,
    ReduceScatterBlock,
    Alltoall,
    Gather,
    Scatter,
    /// Blocks from half to one and a half times the mean, as of all the vector collectives
    Allgatherv,
    Alltoallv,
    Gatherv,
    Scatterv,
    ReduceScatter,
    Scan,
    Exscan,
    Barrier,
    /// Each rank sends to the next one and receives from the one before
    Sendrecv,
}

impl Collective {
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |v| v.get_name().to_owned())
    }

    /// Whether NCCL's interface lacks it. Its `ncclReduceScatter` has equal blocks.
    pub(crate) const fn only_mpi(self) -> bool {
        matches!(self, Collective::Scan | Collective::Exscan | Collective::Barrier)
            || self.is_vector()
    }

    /// Whether blocks differ in length.
    pub(crate) const fn is_vector(self) -> bool {
        use Collective::{Allgatherv, Alltoallv, Gatherv, ReduceScatter, Scatterv};
        matches!(self, Allgatherv | Alltoallv | Gatherv | ReduceScatter | Scatterv)
    }

    pub(crate) const fn reduces(self) -> bool {
        use Collective::{Allreduce, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan};
        matches!(self, Allreduce | Reduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan)
    }

    const fn has_blocks(self) -> bool {
        use Collective::{Allgather, Alltoall, Gather, ReduceScatterBlock, Scatter};
        self.is_vector()
            || matches!(self, Allgather | Alltoall | Gather | ReduceScatterBlock | Scatter)
    }
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Datatype {
    Uint8,
    Int32,
    Int64,
    Half,
    Bfloat16,
    Float,
    Double,
}

impl Datatype {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Datatype::Uint8 => 1,
            Datatype::Half | Datatype::Bfloat16 => 2,
            Datatype::Int32 | Datatype::Float => 4,
            Datatype::Int64 | Datatype::Double => 8,
        }
    }

    /// Writes a small number.
    fn put(self, value: f64, at: &mut [u8]) {
        match self {
            Datatype::Uint8 => at.copy_from_slice(&[value as u64 as u8]),
            Datatype::Int32 => at.copy_from_slice(&(value as i64 as i32).to_ne_bytes()),
            Datatype::Int64 => at.copy_from_slice(&(value as i64).to_ne_bytes()),
            Datatype::Half => at.copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
            Datatype::Bfloat16 => at.copy_from_slice(&bf16::from_f64(value).to_ne_bytes()),
            Datatype::Float => at.copy_from_slice(&(value as f32).to_ne_bytes()),
            Datatype::Double => at.copy_from_slice(&value.to_ne_bytes()),
        }
    }

    fn get(self, at: &[u8]) -> f64 {
        fn array<const N: usize>(at: &[u8]) -> [u8; N] {
            std::array::from_fn(|i| at[i])
        }
        match self {
            Datatype::Uint8 => f64::from(at[0]),
            Datatype::Int32 => f64::from(i32::from_ne_bytes(array(at))),
            Datatype::Int64 => i64::from_ne_bytes(array(at)) as f64,
            Datatype::Half => f16::from_ne_bytes(array(at)).to_f64(),
            Datatype::Bfloat16 => bf16::from_ne_bytes(array(at)).to_f64(),
            Datatype::Float => f64::from(f32::from_ne_bytes(array(at))),
            Datatype::Double => f64::from_ne_bytes(array(at)),
        }
    }

    /// How far a sum of `ranks` small numbers may be off, as a part of it: whole numbers are exact.
    const fn tolerance(self) -> f64 {
        match self {
            Datatype::Half => 1.0 / 256.0,
            Datatype::Bfloat16 => 1.0 / 32.0,
            Datatype::Float => 1e-6,
            _ => 0.0,
        }
    }
}

/// Operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Op {
    Sum,
    Prod,
    Max,
    Min,
}

impl Op {
    fn combine(self, a: f64, b: f64) -> f64 {
        match self {
            Op::Sum => a + b,
            Op::Prod => a * b,
            Op::Max => a.max(b),
            Op::Min => a.min(b),
        }
    }
}

/// One call: what, of how much, as which rank of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) collective: Collective,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) root: usize,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Elements of one block, of vector collectives on average: of the whole buffer, where a collective has no blocks.
    pub(crate) count: usize,
}

/// Values repeat after this many elements, so that what a result must be is known without every rank's buffer.
const PERIOD: usize = 7;

impl Call {
    /// Elements per block so that the buffer with all blocks has about `bytes`, as nccl-tests counts sizes.
    pub(crate) fn count_of(
        collective: Collective,
        datatype: Datatype,
        bytes: usize,
        size: usize,
    ) -> usize {
        let elements = bytes / datatype.bytes();
        if collective.has_blocks() { elements / size } else { elements }
    }

    /// Bytes that the table names: of the buffer with all blocks.
    pub(crate) fn bytes(&self) -> usize {
        let blocks = if self.collective.has_blocks() { self.size } else { 1 };
        self.count * blocks * self.datatype.bytes()
    }

    /// Elements of rank `rank`'s block. Vector collectives have blocks that grow with the rank, from half to one and a half times
    /// the mean, and together as long as equal ones.
    fn block(&self, rank: usize) -> usize {
        let mirror = self.size - 1 - rank;
        if !self.collective.is_vector() || rank == mirror {
            self.count
        } else if rank < mirror {
            self.count / 2 + self.count * rank / (self.size - 1)
        } else {
            2 * self.count - self.block(mirror)
        }
    }

    /// Elements that rank `from` has for rank `to` in an alltoall; each rank sends and receives as much as the others.
    fn between(&self, from: usize, to: usize) -> usize {
        self.block((from + to) % self.size)
    }

    fn blocks(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.block(rank)).collect()
    }

    /// Elements of the blocks that this rank gives, one after the other.
    pub(crate) fn input_blocks(&self) -> Vec<usize> {
        use Collective::{
            Allgatherv, Alltoall, Alltoallv, Barrier, Bcast, Gatherv, ReduceScatter,
            ReduceScatterBlock, Scatter, Scatterv,
        };
        let is_root = self.rank == self.root;
        match self.collective {
            Barrier => Vec::new(),
            Scatter | Scatterv | Bcast if !is_root => Vec::new(),
            ReduceScatterBlock | ReduceScatter | Scatter | Scatterv => self.blocks(),
            Alltoall | Alltoallv => (0..self.size).map(|to| self.between(self.rank, to)).collect(),
            Allgatherv | Gatherv => vec![self.block(self.rank)],
            _ => vec![self.count],
        }
    }

    /// Elements of the blocks that this rank gets, one after the other.
    pub(crate) fn output_blocks(&self) -> Vec<usize> {
        use Collective::{
            Allgather, Allgatherv, Alltoall, Alltoallv, Barrier, Bcast, Exscan, Gather, Gatherv,
            Reduce, ReduceScatter, Scatterv,
        };
        let is_root = self.rank == self.root;
        match self.collective {
            Barrier => Vec::new(),
            Gather | Gatherv | Reduce if !is_root => Vec::new(),
            // It has its own data.
            Bcast if is_root => Vec::new(),
            // The first rank's result is undefined.
            Exscan if self.rank == 0 => Vec::new(),
            Allgather | Allgatherv | Gather | Gatherv => self.blocks(),
            Alltoall | Alltoallv => {
                (0..self.size).map(|from| self.between(from, self.rank)).collect()
            }
            ReduceScatter | Scatterv => vec![self.block(self.rank)],
            _ => vec![self.count],
        }
    }

    /// Elements that this rank gives.
    pub(crate) fn input_count(&self) -> usize {
        self.input_blocks().iter().sum()
    }

    /// Elements that this rank gets.
    pub(crate) fn output_count(&self) -> usize {
        self.output_blocks().iter().sum()
    }

    /// Elements that this rank's buffer for the result has room for: libraries may write where nobody looks.
    pub(crate) fn output_room(&self) -> usize {
        let all_have_one = matches!(self.collective, Collective::Bcast | Collective::Exscan);
        if all_have_one { self.count } else { self.output_count() }
    }

    /// What rank `rank` has at element `i` of its input.
    fn value(&self, rank: usize, i: usize) -> f64 {
        let small = (rank * 3 + i) % PERIOD;
        // Products of many ranks stay small enough for every type.
        if matches!(self.op, Op::Prod) && self.collective.reduces() {
            if small == 0 && rank < 7 { 2.0 } else { 1.0 }
        } else {
            small as f64
        }
    }

    fn reduced(&self, ranks: std::ops::Range<usize>, i: usize) -> f64 {
        let values = ranks.map(|rank| self.value(rank, i));
        values.reduce(|a, b| self.op.combine(a, b)).unwrap_or(0.0)
    }

    /// What this rank's result must be at element `i` of one of its blocks.
    fn expected(&self, block: usize, i: usize) -> f64 {
        use Collective as C;
        let mine = || (0..self.rank).map(|rank| self.block(rank)).sum::<usize>();
        match self.collective {
            C::Allreduce | C::Reduce => self.reduced(0..self.size, i),
            C::Bcast => self.value(self.root, i),
            C::Allgather | C::Allgatherv | C::Gather | C::Gatherv => self.value(block, i),
            C::ReduceScatterBlock | C::ReduceScatter => self.reduced(0..self.size, mine() + i),
            C::Alltoall | C::Alltoallv => {
                let before: usize = (0..self.rank).map(|to| self.between(block, to)).sum();
                self.value(block, before + i)
            }
            C::Scatter | C::Scatterv => self.value(self.root, mine() + i),
            C::Scan => self.reduced(0..self.rank + 1, i),
            C::Exscan => self.reduced(0..self.rank, i),
            C::Sendrecv => self.value((self.rank + self.size - 1) % self.size, i),
            C::Barrier => 0.0,
        }
    }

    /// This rank's input.
    pub(crate) fn fill(&self, input: &mut [u8]) {
        let width = self.datatype.bytes();
        let len = self.input_count() * width;
        for (i, at) in input[..len].chunks_exact_mut(width).enumerate() {
            self.datatype.put(self.value(self.rank, i), at);
        }
    }

    /// Elements of this rank's result that are wrong.
    pub(crate) fn wrong(&self, output: &[u8]) -> usize {
        let width = self.datatype.bytes();
        let wraps = |x: f64| if self.datatype == Datatype::Uint8 { x % 256.0 } else { x };
        let mut rest = output;
        let mut wrong = 0;
        for (block, len) in self.output_blocks().into_iter().enumerate() {
            let here;
            (here, rest) = rest.split_at(len * width);
            // Inside a block sums over ranks repeat as the values do.
            let row: [f64; PERIOD] = std::array::from_fn(|i| wraps(self.expected(block, i)));
            for (at, expected) in here.chunks_exact(width).zip(row.into_iter().cycle()) {
                let off = (self.datatype.get(at) - expected).abs();
                // Not a number is wrong as well.
                let right = off <= expected.abs() * self.datatype.tolerance();
                wrong += usize::from(!right);
            }
        }
        wrong
    }

    /// Bytes per second as the program sees it (`bytes / time`) and as the busiest link does, both in GB/s, by nccl-tests'
    /// definitions; scan and exscan, which it does not have, count their bytes once.
    pub(crate) fn bandwidths(&self, seconds: f64) -> (f64, f64) {
        let ranks = self.size as f64;
        let factor = match self.collective {
            Collective::Allreduce => 2.0 * (ranks - 1.0) / ranks,
            c if c.has_blocks() => (ranks - 1.0) / ranks,
            _ => 1.0,
        };
        let algorithm = self.bytes() as f64 / seconds / 1e9;
        (algorithm, algorithm * factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(collective: Collective, rank: usize, size: usize, count: usize) -> Call {
        Call { collective, datatype: Datatype::Int32, op: Op::Sum, root: 1, rank, size, count }
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        // 8 ranks, 8 MB in 1 ms: 8 GB/s.
        let of =
            |c| call(c, 0, 8, Call::count_of(c, Datatype::Int32, 8_000_000, 8)).bandwidths(1e-3);
        for (collective, busbw) in [
            (Collective::Allreduce, 14.0),
            (Collective::Allgather, 7.0),
            (Collective::ReduceScatterBlock, 7.0),
            (Collective::Alltoall, 7.0),
            (Collective::Bcast, 8.0),
            (Collective::Reduce, 8.0),
        ] {
            let (a, b) = of(collective);
            assert!((a - 8.0).abs() < 1e-9 && (b - busbw).abs() < 1e-9, "{collective:?}: {a} {b}");
        }
    }

    #[test]
    fn one_wrong_element_is_found() {
        let call = call(Collective::Allgather, 0, 3, 10);
        let mut output: Vec<u8> =
            (0..30).flat_map(|i| (((i / 10) * 3 + i % 10) % 7_i32).to_ne_bytes()).collect();
        assert_eq!(call.wrong(&output), 0);
        output[4 * 17] ^= 1;
        assert_eq!(call.wrong(&output), 1);
    }

    /// A whole alltoall and reduce_scatter by hand.
    #[test]
    fn blocks_go_where_they_belong() {
        let (size, count) = (3, 5);
        let input = |collective, rank| {
            let mut bytes = vec![0; 4 * size * count];
            call(collective, rank, size, count).fill(&mut bytes);
            bytes
        };
        for rank in 0..size {
            let all: Vec<Vec<u8>> = (0..size).map(|r| input(Collective::Alltoall, r)).collect();
            let block = 4 * rank * count..4 * (rank + 1) * count;
            let got: Vec<u8> = all.iter().flat_map(|bytes| bytes[block.clone()].to_vec()).collect();
            assert_eq!(call(Collective::Alltoall, rank, size, count).wrong(&got), 0);
            let sums: Vec<u8> = (block.start..block.end)
                .step_by(4)
                .flat_map(|at| {
                    let value = |bytes: &Vec<u8>| Datatype::Int32.get(&bytes[at..at + 4]) as i32;
                    all.iter().map(value).sum::<i32>().to_ne_bytes()
                })
                .collect();
            assert_eq!(call(Collective::ReduceScatterBlock, rank, size, count).wrong(&sums), 0);
        }
    }
    /// A block's element i of a vector collective by hand: 2 ranks, 4 elements on average, so 2 and 6.
    #[test]
    fn vector_collectives_have_unequal_blocks() {
        use Collective::{Allgatherv, Alltoallv, Gatherv, ReduceScatter, Scatterv};
        for (collective, rank, input, output) in [
            (Allgatherv, 0, vec![2], vec![2, 6]),
            (Gatherv, 0, vec![2], vec![]),
            (Gatherv, 1, vec![6], vec![2, 6]),
            (Scatterv, 1, vec![2, 6], vec![6]),
            (ReduceScatter, 0, vec![2, 6], vec![2]),
            (Alltoallv, 0, vec![2, 6], vec![2, 6]),
            (Alltoallv, 1, vec![6, 2], vec![6, 2]),
        ] {
            let call = call(collective, rank, 2, 4);
            assert_eq!(call.input_blocks(), input, "{collective:?} on {rank}");
            assert_eq!(call.output_blocks(), output, "{collective:?} on {rank}");
        }
        let bytes =
            |values: &[i32]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        // Rank 0 has 0 1 2 3 4 5 6 0, rank 1 has 3 4 5 6 0 1 2 3.
        let right = bytes(&[2, 3, 4, 5, 6, 0, 2, 3]);
        assert_eq!(call(Alltoallv, 1, 2, 4).wrong(&right), 0);
        assert_eq!(call(ReduceScatter, 1, 2, 4).wrong(&bytes(&[7, 9, 4, 6, 8, 3])), 0);
        assert_eq!(call(Scatterv, 0, 2, 4).wrong(&bytes(&[3, 4])), 0);
        assert_eq!(call(Allgatherv, 0, 2, 4).wrong(&bytes(&[0, 1, 3, 4, 5, 6, 0, 1])), 0);
        assert_eq!(call(Allgatherv, 0, 2, 4).wrong(&bytes(&[0, 1, 2, 4, 5, 6, 0, 1])), 1);
        for (size, count) in [(1, 5), (3, 1), (5, 7), (8, 1000)] {
            let blocks = call(Allgatherv, 0, size, count).output_blocks();
            assert_eq!(blocks.iter().sum::<usize>(), size * count, "{blocks:?}");
        }
    }
}
