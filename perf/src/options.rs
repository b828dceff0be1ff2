//! What the user asks for.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::call::{Call, Collective, Datatype, Op};
use crate::memory::Memory;

/// Options.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    hetccl perf                                   allreduce of 2 ranks on this host, through MPI\n  \
    hetccl perf allgather alltoall -n 4 -e 64M --format csv --output times.csv\n  \
    hetccl perf --memory cuda,rocm -n 2           a CUDA and a ROCm rank, through NCCL's interface\n  \
    hetccl perf --memory cuda --library /usr/lib/x86_64-linux-gnu/libnccl.so.2      NVIDIA's own library\n  \
    mpirun --mca coll hetccl -n 8 hetccl perf --plot allreduce.svg\n  \
    mpirun -n 8 hetccl perf                       Open MPI's own components\n\n\
    Sizes are those of the buffer with all blocks, and algbw and busbw are as nccl-tests defines them, in GB/s.\n\n\
    Exit codes: 0 done, all results right; 1 failed; 2 wrong use; 3 a result was wrong.")]
pub struct Args {
    /// What is measured
    #[arg(value_name = "COLLECTIVE", default_value = "allreduce")]
    collectives: Vec<Collective>,
    /// Ranks to start on this host; under mpirun it says how many
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: u16,
    /// Who does it: MPI, or NCCL's interface (default: MPI for host memory, otherwise NCCL's)
    #[arg(long)]
    via: Option<Via>,
    /// Where buffers are; with several, ranks take them in turn
    #[arg(short, long, value_delimiter = ',', default_value = "host")]
    memory: Vec<Memory>,
    /// Smallest size in bytes (K, M, G: times 1024)
    #[arg(short = 'b', long, default_value = "8", value_parser = bytes, value_name = "BYTES")]
    min_bytes: usize,
    /// Largest size in bytes
    #[arg(short = 'e', long, default_value = "4M", value_parser = bytes, value_name = "BYTES")]
    max_bytes: usize,
    /// Each size is this many times the one before
    #[arg(short = 'f', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    factor: u32,
    /// Elements
    #[arg(short, long, default_value = "float")]
    datatype: Datatype,
    /// Operation of collectives that reduce
    #[arg(short, long, default_value = "sum")]
    op: Op,
    /// Root of collectives that have one
    #[arg(short, long, default_value_t = 0)]
    root: usize,
    /// Calls in a round (default: as many as take 20 ms, 5 to 1000)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Calls before the first round
    #[arg(long, default_value_t = 5)]
    warm_up: u32,
    /// Do not look at the results
    #[arg(long)]
    no_check: bool,
    /// How results are printed
    #[arg(long, default_value = "table")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print results into a file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw times and bandwidths, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The library of NCCL's interface (default: hetccl's)
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Where hetccl's libraries are looked for; set by the program
    #[arg(skip)]
    pub folders: Vec<PathBuf>,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Via {
    Mpi,
    Nccl,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Csv,
    Json,
}

/// What is to be done, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) collectives: Vec<Collective>,
    pub(crate) ranks: usize,
    pub(crate) via: Via,
    memory: Vec<Memory>,
    sizes: Vec<usize>,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) root: usize,
    pub(crate) iterations: Option<u32>,
    pub(crate) warm_up: u32,
    pub(crate) check: bool,
    pub(crate) format: Format,
    pub(crate) output: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
    library: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Plan {
    pub(crate) fn new(args: &Args) -> Result<Plan> {
        let on_host = args.memory.contains(&Memory::Host);
        let via = args.via.unwrap_or(if on_host { Via::Mpi } else { Via::Nccl });
        if via == Via::Nccl && on_host {
            bail!("NCCL's interface takes device memory only: --memory cuda or rocm, or --via mpi");
        }
        let unknown = args.collectives.iter().find(|collective| collective.only_mpi());
        if let (Via::Nccl, Some(collective)) = (via, unknown) {
            bail!("NCCL's interface has no {}: take --via mpi", collective.name());
        }
        if args.min_bytes > args.max_bytes {
            bail!("--min-bytes {} is more than --max-bytes {}", args.min_bytes, args.max_bytes);
        }
        let device = args.memory.iter().any(|memory| *memory != Memory::Host);
        if via == Via::Mpi && device && args.collectives.contains(&Collective::Sendrecv) {
            bail!(
                "MPI_Sendrecv is Open MPI's, not a collective of hetccl's, and a distribution's Open MPI takes no device memory"
            );
        }
        let mut sizes = vec![args.min_bytes.max(1)];
        while let Some(next) = sizes[sizes.len() - 1].checked_mul(args.factor as usize) {
            if next > args.max_bytes {
                break;
            }
            sizes.push(next);
        }
        Ok(Plan {
            collectives: args.collectives.clone(),
            ranks: args.ranks.into(),
            via,
            memory: args.memory.clone(),
            sizes,
            datatype: args.datatype,
            op: args.op,
            root: args.root,
            iterations: args.iterations,
            warm_up: args.warm_up,
            check: !args.no_check,
            format: if args.json { Format::Json } else { args.format },
            output: args.output.clone(),
            plot: args.plot.clone(),
            library: args.library.clone(),
            folders: args.folders.clone(),
        })
    }

    pub(crate) fn memory_of(&self, rank: usize) -> Memory {
        self.memory[rank % self.memory.len()]
    }

    /// Memory kinds, in words.
    pub(crate) fn memory_names(&self) -> String {
        self.memory.iter().map(|m| format!("{m:?}").to_lowercase()).collect::<Vec<_>>().join(",")
    }

    /// The calls of a rank, none twice and none of less than an element.
    pub(crate) fn calls(&self, rank: usize, size: usize) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for &collective in &self.collectives {
            let mut last = 0;
            for &bytes in &self.sizes {
                let barrier = collective == Collective::Barrier;
                let count = if barrier {
                    0
                } else {
                    Call::count_of(collective, self.datatype, bytes, size).max(1)
                };
                if last == count && !calls.last().is_none_or(|call| call.collective != collective) {
                    continue;
                }
                last = count;
                let (datatype, op, root) = (self.datatype, self.op, self.root);
                calls.push(Call { collective, datatype, op, root, rank, size, count });
            }
        }
        calls
    }

    /// The library of NCCL's interface for a rank with this memory.
    pub(crate) fn library(&self, memory: Memory) -> Result<PathBuf> {
        if let Some(library) = &self.library {
            return Ok(library.clone());
        }
        let name = if memory == Memory::Rocm { "librccl.so.1" } else { "libnccl.so.2" };
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        let looked: Vec<String> =
            self.folders.iter().map(|folder| folder.display().to_string()).collect();
        found.ok_or_else(|| {
            anyhow::anyhow!(
                "no {name} in {}: install hetccl, or name a library with --library",
                looked.join(" or ")
            )
        })
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    let (number, shift) = match text.trim_end_matches(['B', 'b', 'i']).to_uppercase() {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 20),
        t if t.ends_with('G') => (t[..t.len() - 1].to_owned(), 30),
        t => (t, 0),
    };
    let number: usize =
        number.parse().map_err(|_| format!("{text:?} is no size, such as 4096 or 64M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("8"), Ok(8));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("3MiB"), Ok(3 << 20));
        assert!(bytes("many").is_err());
    }
}
