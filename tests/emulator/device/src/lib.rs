//! What hetccl's emulated GPU drivers share.
//!
//! The crates beside this one are drop-in libraries (`libcuda.so.1`, `libamdhip64.so.6`, `libze_loader.so.1`) that keep device memory in host
//! memory, so that GPU code is tested on machines without a GPU. This crate holds what does not depend on the API:
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | allocations, mapped twice: without access for the program, readable for the emulator |
//! | [`fault`] | the line, the count and the death that a stray access to device memory ends in |
//! | [`stream`] | one thread per stream, and the order of the legacy default stream |
//! | [`graph`] | graphs: work that streams record, and run again and again |
//! | [`event`] | events, also between processes |
//! | [`signal`] | events that are set and reset, as Level Zero has them |
//! | [`copy`] | what copies and fills wait for |
//! | [`kernel`] | kernels: functions of a shared object for the host |
//! | [`process`] | memory handles that travel between processes |
//! | [`mapping`] | virtual memory management: physical memory and addresses apart |
//! | [`abi`] | arguments of C callers, handle tables, the way in through [`abi::enter`] |
//!
//! # Settings
//!
//! All are environment variables, read once.
//!
//! | variable | meaning |
//! |---|---|
//! | `HETCCL_EMULATOR_CUDA_DEVICES`, `HETCCL_EMULATOR_HIP_DEVICES`, `HETCCL_EMULATOR_LEVEL_ZERO_DEVICES` | number of devices, default 1; 0 for a machine without |
//! | `HETCCL_EMULATOR_MEMORY_BYTES` | memory of each device, for each process; default 1 GiB |
//! | `HETCCL_EMULATOR_DELAY_US` | wait before each stream operation: `N`, or `LOW..HIGH` for a random one; default `0..50` |
//! | `HETCCL_EMULATOR_SEED` | seed of the random waits, default 1 |
//! | `HETCCL_EMULATOR_KERNELS` | shared object that has the kernels of images which the host cannot run (PTX, code objects) |
//! | `HETCCL_EMULATOR_FAULTS` | file that gets a line for each stray access |
//! | `HETCCL_EMULATOR_FAIL` | `function:n[:code]`, several by commas: the n-th call of the function fails |
//!
//! # Kernels
//!
//! A kernel `foo` is an exported function of C linkage that runs all threads of the launch itself:
//!
//! ```c
//! void foo(void **arguments, const unsigned grid[3], const unsigned block[3]);
//! ```
//!
//! `arguments` has a pointer to each argument, as `kernelParams` has. A driver copies the arguments at the launch, with
//! sizes from the image. Here they come from `const unsigned foo_parameter_bytes[]`, sizes that end with 0, if the shared
//! object has it; otherwise 32 arguments of up to 4096 bytes are taken as far as they can be read.
//!
//! While a kernel runs, all device memory is accessible to the whole process: stray accesses of other threads in this
//! time are not noticed.

pub mod abi;
pub mod code;
pub mod copy;
pub mod event;
pub mod failure;
pub mod fault;
pub mod file;
pub mod graph;
pub mod graph_handles;
pub mod kernel;
pub mod mapping;
pub mod memory;
pub mod process;
pub mod settings;
pub mod signal;
pub mod stream;
pub mod symbol;
mod window;

pub use code::Code;
pub use settings::{Vendor, is_fork_child, start, vendor};
