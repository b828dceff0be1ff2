//! `hetccl tune`: measures the memories and links of a job and writes them as a cluster file, which `hetccl sim` reads.
//!
//! ```text
//! layout.rs     which ranks share nodes and devices
//! links.rs      rates and times of memories and links
//! file.rs       the cluster file, and a table for people
//! ```
//!
//! Links are measured through MPI's collectives, between two ranks or two nodes at a time, so they are those that hetccl uses.

mod file;
mod layout;
mod links;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::library::Library;
use crate::library::mpi::Mpi;
use crate::memory::{Memory, Place};
use crate::start;
use layout::{Identity, Layout};

/// Options.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    hetccl tune                                   2 ranks on this host, host memory\n  \
    hetccl tune -n 4 --memory cuda,rocm           two CUDA and two ROCm ranks, in turn\n  \
    mpirun --mca coll hetccl -n 16 hetccl tune --memory cuda --output cluster.toml\n  \
    hetccl sim --cluster cluster.toml --bytes 1M..1G\n\n\
    Not measured: NVLink and xGMI (fabric_gb_s), and how long a message is before it waits for its receiver (eager_kib); the file says \
    where to add them. Start as many ranks, bound as, in the jobs that it is for.\n\n\
    Exit codes: 0 the file was written; 1 failed; 2 wrong use.")]
pub struct Args {
    /// Ranks to start on this host; under mpirun it says how many
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=1024))]
    ranks: u16,
    /// Where the ranks' buffers are; with several, ranks take them in turn
    #[arg(short, long, value_delimiter = ',', default_value = "host")]
    memory: Vec<Memory>,
    /// The cluster file to write
    #[arg(short, long, default_value = "cluster.toml", value_name = "FILE")]
    output: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
}

/// Measures, as one of the ranks that somebody has started, or starts them.
///
/// # Errors
/// What could not be loaded, started, called or written.
pub fn tune(args: &Args) -> Result<ExitCode> {
    if !start::launched() {
        may_be_written(args)?;
        return start::mpirun(args.ranks.into());
    }
    let mut mpi = Mpi::new()?;
    if mpi.size < 2 {
        bail!("one rank has no links to measure: start at least 2");
    }
    let first = mpi.rank == 0;
    if first {
        may_be_written(args)?;
    }
    let memory = args.memory[mpi.rank % args.memory.len()];
    let through = mpi.describe();
    if memory != Memory::Host && !through.contains("hetccl") {
        bail!("device memory wants hetccl: mpirun --mca coll hetccl ... hetccl tune");
    }
    let rank = mpi.rank;
    let name = || format!("rank {rank}");
    let place = Place::new(memory, start::local_rank(rank)).with_context(name)?;
    let own = Identity::new(memory, &place, rank).with_context(name)?;
    let layout = Layout::new(&own.exchange(&mpi)?);
    let bar = progress(first);
    let measured = links::measure(&mut mpi, &place, &layout, &bar).with_context(name)?;
    bar.finish_and_clear();
    if first {
        let text = file::text(&layout, &measured, &through);
        let mut file = options(args).open(&args.output).with_context(|| at(args))?;
        file.write_all(text.as_bytes()).with_context(|| at(args))?;
        let mut out = std::io::stdout().lock();
        if args.json {
            serde_json::to_writer_pretty(&mut out, &file::report(&layout, &measured, &through))?;
            writeln!(out)?;
        } else {
            write!(out, "{}", file::table(&layout, &measured))?;
            let path = args.output.display();
            writeln!(out, "\nWritten to {path}; next: hetccl sim --cluster {path}")?;
        }
    }
    mpi.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Says now what would go wrong after minutes of measuring.
fn may_be_written(args: &Args) -> Result<()> {
    if args.output.exists() && !args.force {
        bail!("{} is there already: take --force, or another --output", args.output.display());
    }
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("cannot write {}: {} is no folder", args.output.display(), folder.display());
    }
    Ok(())
}

fn options(args: &Args) -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).truncate(true).create(true);
    if !args.force {
        options.create_new(true);
    }
    options
}

fn at(args: &Args) -> String {
    format!("cannot write {}", args.output.display())
}

/// On rank 0's terminal, nowhere else.
fn progress(first: bool) -> ProgressBar {
    let target = if first && std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
    ProgressBar::with_draw_target(None, target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
