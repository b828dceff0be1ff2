//! Developer commands: `cargo xtask demo`, `test`, `install`, `bench mpi` and the rest.
//!
//! A library as well, so that the test suites install and start programs in the same way.
#![forbid(unsafe_code)]

pub mod bench;
pub mod command;
pub mod debian13;
pub mod demo;
pub mod docs;
pub mod emulate;
pub mod failures;
pub mod fuzz;
pub mod install;
pub mod kernels;
pub mod lammps;
pub mod leaks;
pub mod mpi;
pub mod mpi4py;
pub mod nccl;
pub mod package;
pub mod plot;
pub mod python;
pub mod setup;
pub mod simulate;
pub mod soak;
pub mod spirv;
pub mod test;
pub mod ucx_cuda;
pub mod vendor;
