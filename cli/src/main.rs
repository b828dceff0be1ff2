//! `hetccl`: what is here, what it can do on this host, and what a described machine could do.
#![forbid(unsafe_code)]

mod balance;
mod completions;
mod doctor;
mod generate;
mod info;
mod inspect;
mod run;
mod sim;
mod sysfs;
mod topology;

use clap::{Parser, Subcommand};

/// Heterogeneous collective communication for MPI programs.
#[derive(Parser)]
#[command(name = "hetccl", version, arg_required_else_help = true)]
#[command(after_help = "Run an MPI program with hetccl as its only collective component:\n  \
    mpirun --mca coll hetccl -n 4 ./app\n\n\
    Exit codes: 0 done, 1 failed, 2 wrong use.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show version, Open MPI, UCX, this host's topology, algorithms and settings
    Info(info::Args),
    /// Show what this host can do with GPU memory, and why not more
    Doctor(doctor::Args),
    /// Show where ranks are: their last collectives, also of processes that are stopped or stuck
    Inspect(inspect::Args),
    /// Run a program that uses NCCL or RCCL on hetccl's library
    Run(run::Args),
    /// Simulate a collective on a described cluster, next to the lower bound and to other schedules
    Sim(sim::Args),
    /// Share a global batch among ranks of unequal speed, and print the weights that keep the gradient right
    Balance(balance::Args),
    /// Measure collectives: any, through MPI or NCCL's interface, on host or device memory
    Perf(hetccl_perf::Args),
    /// Measure a job's memories and links and write them as a cluster file, which `hetccl sim` reads
    Tune(hetccl_perf::TuneArgs),
    /// Print a shell's completions of hetccl
    Completions(completions::Args),
    /// Write man pages, completions and the reference of settings, for packages
    #[command(hide = true)]
    Generate(generate::Args),
}

fn perf(mut args: hetccl_perf::Args) -> anyhow::Result<std::process::ExitCode> {
    args.folders = run::folders()?;
    hetccl_perf::run(&args)
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Balance(args) => balance::run(&args),
        Command::Perf(args) => match perf(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Tune(args) => match hetccl_perf::tune(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Completions(args) => completions::run(&args),
        Command::Generate(args) => generate::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // In one piece: several ranks may say something at once.
            let text = format!("hetccl: {error:#}\n");
            eprint!("{text}");
            std::process::ExitCode::FAILURE
        }
    }
}
