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

    /// Whether NCCL's interface lacks it.
    pub(crate) const fn only_mpi(self) -> bool {
        matches!(self, Collective::Scan | Collective::Exscan | Collective::Barrier)
    }

    pub(crate) const fn reduces(self) -> bool {
        use Collective::{Allreduce, Exscan, Reduce, ReduceScatterBlock, Scan};
        matches!(self, Allreduce | Reduce | ReduceScatterBlock | Scan | Exscan)
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) collective: Collective,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) root: usize,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Elements of one block: of the whole buffer, where a collective has no blocks.
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
        if has_blocks(collective) { elements / size } else { elements }
    }

    /// Bytes that the table names: of the buffer with all blocks.
    pub(crate) fn bytes(&self) -> usize {
        let blocks = if has_blocks(self.collective) { self.size } else { 1 };
        self.count * blocks * self.datatype.bytes()
    }

    /// Elements that this rank gives.
    pub(crate) fn input_count(&self) -> usize {
        use Collective::{Alltoall, Barrier, Bcast, ReduceScatterBlock, Scatter};
        match self.collective {
            Barrier => 0,
            ReduceScatterBlock | Alltoall => self.count * self.size,
            Scatter => {
                if self.rank == self.root {
                    self.count * self.size
                } else {
                    0
                }
            }
            Bcast => {
                if self.rank == self.root {
                    self.count
                } else {
                    0
                }
            }
            _ => self.count,
        }
    }

    /// Elements that this rank gets.
    pub(crate) fn output_count(&self) -> usize {
        use Collective::{Allgather, Alltoall, Barrier, Exscan, Gather, Reduce};
        match self.collective {
            Barrier => 0,
            Allgather | Alltoall => self.count * self.size,
            Gather => {
                if self.rank == self.root {
                    self.count * self.size
                } else {
                    0
                }
            }
            Reduce => {
                if self.rank == self.root {
                    self.count
                } else {
                    0
                }
            }
            // It has its own data.
            Collective::Bcast => {
                if self.rank == self.root {
                    0
                } else {
                    self.count
                }
            }
            // The first rank's result is undefined.
            Exscan => {
                if self.rank == 0 {
                    0
                } else {
                    self.count
                }
            }
            _ => self.count,
        }
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

    /// What this rank's result must be at element `i`.
    fn expected(&self, i: usize) -> f64 {
        let (block, inside) = (i / self.count.max(1), i % self.count.max(1));
        let mine = self.rank * self.count;
        match self.collective {
            Collective::Allreduce | Collective::Reduce => self.reduced(0..self.size, i),
            Collective::Bcast => self.value(self.root, i),
            Collective::Allgather | Collective::Gather => self.value(block, inside),
            Collective::ReduceScatterBlock => self.reduced(0..self.size, mine + i),
            Collective::Alltoall => self.value(block, mine + inside),
            Collective::Scatter => self.value(self.root, mine + i),
            Collective::Scan => self.reduced(0..self.rank + 1, i),
            Collective::Exscan => self.reduced(0..self.rank, i),
            Collective::Sendrecv => self.value((self.rank + self.size - 1) % self.size, i),
            Collective::Barrier => 0.0,
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
        let len = self.output_count() * width;
        let wraps = |x: f64| if self.datatype == Datatype::Uint8 { x % 256.0 } else { x };
        // Sums over ranks repeat as the values do; a block's start shifts them.
        let mut row: Option<(usize, [f64; PERIOD])> = None;
        let mut wrong = 0;
        for (i, at) in output[..len].chunks_exact(width).enumerate() {
            let (block, inside) = (i / self.count, i % self.count);
            if row.is_none_or(|(last, _)| last != block) {
                let start = block * self.count;
                let values = std::array::from_fn(|k| {
                    if k < self.count { wraps(self.expected(start + k)) } else { 0.0 }
                });
                row = Some((block, values));
            }
            let expected = row.map_or(0.0, |(_, values)| values[inside % PERIOD]);
            let off = (self.datatype.get(at) - expected).abs();
            // Not a number is wrong as well.
            let right = off <= expected.abs() * self.datatype.tolerance();
            wrong += usize::from(!right);
        }
        wrong
    }

    /// Bytes per second as the program sees it (`bytes / time`) and as the busiest link does, both in GB/s, by nccl-tests'
    /// definitions; scan and exscan, which it does not have, count their bytes once.
    pub(crate) fn bandwidths(&self, seconds: f64) -> (f64, f64) {
        let ranks = self.size as f64;
        let factor = match self.collective {
            Collective::Allreduce => 2.0 * (ranks - 1.0) / ranks,
            c if has_blocks(c) => (ranks - 1.0) / ranks,
            _ => 1.0,
        };
        let algorithm = self.bytes() as f64 / seconds / 1e9;
        (algorithm, algorithm * factor)
    }
}

const fn has_blocks(collective: Collective) -> bool {
    use Collective::{Allgather, Alltoall, Gather, ReduceScatterBlock, Scatter};
    matches!(collective, Allgather | Alltoall | Gather | ReduceScatterBlock | Scatter)
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
}
