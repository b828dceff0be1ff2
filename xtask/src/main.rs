//! `cargo xtask`: see [`xtask`].
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{
    bench, debian13, demo, docs, emulate, failures, fuzz, install, kernels, lammps, leaks, mpi4py,
    nccl, package, setup, simulate, soak, test, vendor,
};

/// hetccl's developer commands
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the system packages that building and testing need
    Setup,
    /// Set up, build, and run every collective on real buffers, beside Open MPI's default
    Demo(demo::Args),
    /// Set up, build, and run every test
    Test(test::Args),
    /// Build and lay out an installation
    Install {
        /// The folder to install into; made if need be, nothing is written elsewhere
        #[arg(long)]
        prefix: PathBuf,
    },
    /// Run mpi4py's own test suite under hetccl and compare with stock Open MPI
    TestMpi4py(mpi4py::Args),
    /// Build and test in a Debian 13 (Open MPI 5, UCX with ROCm modules), made in target/debian13
    TestDebian13(debian13::Args),
    /// Run LAMMPS with and without hetccl and compare the results
    TestLammps,
    /// Look for leaks over communicators made and freed, with valgrind
    TestLeaks,
    /// Load NVIDIA's own NCCL from PyPI beside hetccl's and compare answers to bad input
    TestVendor,
    /// Kill and stop each rank in each collective, let ranks differ, and print the time to the error
    TestFailures(failures::Args),
    /// Give everything that reads bytes from outside what libFuzzer thinks of
    Fuzz(fuzz::Args),
    /// Make random collectives for a long time, kill ranks now and then, and look at results, memory and descriptors
    Soak(soak::Args),
    /// Compile the reduction kernels: PTX into the repository, for AMD into the target directory
    Kernels(kernels::Args),
    /// Build GPU drivers that run on host memory, for tests without a GPU
    Emulate(emulate::Args),
    /// Build the documentation's pages
    Docs,
    /// Make the packages: deb, rpm, wheel
    Package(package::Args),
    /// Install, use, upgrade and remove the packages in fresh systems
    TestPackages(package::TestArgs),
    /// Build libnccl.so.2 and librccl.so.1, and say where they are
    Nccl,
    /// Simulate collectives on the cluster files, and write docs/simulated.md and its plots
    Simulate(simulate::Args),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// MPI collectives under hetccl, Open MPI's default and MPICH in turn
    Mpi(bench::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    let passed = |ok: bool| if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(match task {
        Task::Setup => {
            setup::packages(&[setup::BUILD, setup::TEST, setup::KERNELS])?;
            setup::optional(setup::SPIRV, "kernels in SPIR-V");
            ExitCode::SUCCESS
        }
        Task::Demo(args) => passed(demo::run(&args)?),
        Task::Test(args) => passed(test::run(&args)?),
        Task::Install { prefix } => {
            setup::packages(&[setup::BUILD])?;
            install::release(&prefix)?;
            install::how_to_use(&prefix);
            ExitCode::SUCCESS
        }
        Task::TestMpi4py(args) => passed(mpi4py::run(&args)?),
        Task::TestDebian13(args) => passed(debian13::run(&args)?),
        Task::TestLammps => passed(lammps::run()?),
        Task::TestFailures(args) => passed(failures::run(&args)?),
        Task::Fuzz(args) => passed(fuzz::run(&args)?),
        Task::Soak(args) => passed(soak::run(&args)?),
        Task::TestLeaks => passed(leaks::run()?),
        Task::TestVendor => passed(vendor::run()?),
        Task::Kernels(args) => passed(kernels::run(args)?),
        Task::Docs => {
            docs::run()?;
            ExitCode::SUCCESS
        }
        Task::TestPackages(args) => passed(package::test_packages(&args)?),
        Task::Package(args) => {
            package::run(&args)?;
            ExitCode::SUCCESS
        }
        Task::Nccl => {
            println!("{}", nccl::libraries()?.display());
            ExitCode::SUCCESS
        }
        Task::Simulate(args) => {
            simulate::run(&args)?;
            ExitCode::SUCCESS
        }
        Task::Emulate(args) => passed(emulate::run(&args)?),
        Task::Bench(Bench::Mpi(args)) => passed(bench::run(&args)?),
    })
}
