//! `hetccl`: what is here, what it can do on this host.
#![forbid(unsafe_code)]

mod doctor;
mod info;
mod inspect;
mod run;

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
    /// Show version, Open MPI, UCX, algorithms and settings as hetccl finds them on this host
    Info(info::Args),
    /// Show what this host can do with GPU memory, and why not more
    Doctor(doctor::Args),
    /// Show where ranks are: their last collectives, also of processes that are stopped or stuck
    Inspect(inspect::Args),
    /// Run a program that uses NCCL or RCCL on hetccl's library
    Run(run::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Run(args) => run::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hetccl: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
