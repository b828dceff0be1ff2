//! Simulated times of collectives on the cluster files, as tables and plots in `docs/`.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, root, target_dir};

/// Cluster, collective, sizes, whether with comparisons.
const RUNS: &[(&str, &str, &str, bool)] = &[
    ("hetccl-paper", "allreduce", "64K..1G", true),
    ("hetccl-paper", "reduce_scatter_block", "1M..256M", true),
    ("hetccl-paper", "allgather", "1M..256M", true),
    ("hetccl-paper", "bcast", "1M..256M", true),
    ("hetccl-paper", "reduce", "1M..256M", true),
    ("hetccl-paper", "gather", "1M..256M", true),
    ("hetccl-paper", "scatter", "1M..256M", true),
    ("hetccl-paper", "alltoall", "1M..256M", true),
    ("hetccl-paper", "barrier", "1", true),
    ("unequal-8-4", "allreduce", "16M..1G", true),
    ("unequal-8-2-6", "allreduce", "16M..1G", true),
    ("mixed-node", "allreduce", "1M..256M", true),
    ("h100-mi300x-2", "allreduce", "1M..1G", true),
    ("h100-mi300x-16", "allreduce", "1M..1G", true),
    ("h100-mi300x-1024", "allreduce", "256M..1G", false),
];

const HEAD: &str = "# Simulated times

Written by `cargo xtask simulate`; simulated, not measured. What the cost model picks (time), the time that no schedule can beat
(bound; sim/src/study/bound.rs says how), their ratio (x), and other schedules where they were simulated (sim/src/study/rivals.rs).
The model of the machines is in sim/src/timed/mod.rs, their rates in clusters/.

A flat ring in the order of the nodes crosses each border once, so where borders are all that counts it is near the bound itself: on the
published testbed the bound is 1.20 times faster than the ring (8.6 and 10.3 ms for 64 MiB), and no schedule can be 1.8 times faster.

";

/// What is to be done.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Write nothing: all sizes of the verifier's, the simulator's and the goals' tests, which `cargo xtask test` cuts short
    #[arg(long)]
    check: bool,
    /// Write nothing: lose each rank at each of its steps in every algorithm, at more sizes than `cargo xtask test` does
    #[arg(long)]
    losses: bool,
}

/// Writes everything, or checks.
///
/// # Errors
/// When a simulation or a check fails, or a file can't be written.
pub fn run(args: &Args) -> Result<()> {
    if args.check {
        let mut tests = Command::new("cargo");
        tests.args(["test", "--package", "hetccl-core", "--package", "hetccl-sim", "--tests"]);
        return command::run(tests.current_dir(root()).env("HETCCL_ALL_SIZES", "1"));
    }
    if args.losses {
        let mut tests = Command::new("cargo");
        tests.args(["test", "--release", "--package", "hetccl-sim", "--test", "losses"]);
        tests.args(["--", "--nocapture"]);
        return command::run(tests.current_dir(root()).env("HETCCL_ALL_SIZES", "1"));
    }
    write()
}

/// Writes everything.
///
/// # Errors
/// When a simulation fails or a file can't be written.
fn write() -> Result<()> {
    let build = ["build", "--quiet", "--release", "--package", "hetccl-cli"];
    command::run(Command::new("cargo").args(build).current_dir(root()))?;
    let plots = root().join("docs/simulated");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let mut page = HEAD.to_owned();
    for &(cluster, collective, bytes, compare) in RUNS {
        println!("{collective} on {cluster}");
        let plot = format!("{cluster}-{collective}.svg");
        let mut program = Command::new(target_dir().join("release/hetccl"));
        program.current_dir(root());
        program.args(["sim", "--cluster", &format!("clusters/{cluster}.toml")]);
        program.args(["--collective", collective, "--bytes", bytes]);
        if collective != "barrier" {
            program.arg("--plot").arg(plots.join(&plot));
        }
        program.args((!compare).then_some("--no-compare"));
        let table = command::capture(&mut program)?;
        let (title, rows) = table.split_once('\n').unwrap_or((&table, ""));
        write!(page, "## {title}\n\n```text\n{}\n```\n\n", rows.trim_matches('\n'))?;
        if collective != "barrier" {
            write!(page, "![{title}](simulated/{plot})\n\n")?;
        }
    }
    std::fs::write(root().join("docs/simulated.md"), page.trim_end().to_owned() + "\n")?;
    Ok(())
}
