//! Developer commands: `cargo xtask demo`, `test`, `install`, `bench mpi` and the rest.
//!
//! A library as well, so that the test suites install and start programs in the same way.
#![forbid(unsafe_code)]

pub mod bench;
pub mod command;
pub mod demo;
pub mod emulate;
pub mod failures;
pub mod install;
pub mod kernels;
pub mod lammps;
pub mod leaks;
pub mod mpi;
pub mod mpi4py;
pub mod nccl;
pub mod plot;
pub mod python;
pub mod setup;
pub mod spirv;
pub mod test;
pub mod ucx_cuda;
