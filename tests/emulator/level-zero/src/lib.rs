//! Level Zero on host memory: a `libze_loader.so.1` for tests on machines without a GPU.
//!
//! What it does follows the Level Zero specification 1.x; `hetccl_emulated_device` says how, and which settings there are.
//! Put on `LD_LIBRARY_PATH` by `cargo xtask emulate`.
//!
//! | file | functions |
//! |---|---|
//! | `entry.rs` | what happens around each call, results |
//! | `device.rs` | `zeInit`, `zeDriver*`, `zeDevice*`, `zeContext*` |
//! | `memory.rs` | `zeMem*` |
//! | `command.rs` | `zeCommandQueue*`, `zeCommandList*`, `zeFence*` |
//! | `event.rs` | `zeEventPool*`, `zeEvent*` |
//! | `module.rs` | `zeModule*`, `zeKernel*` |
//!
//! Addresses are looked up whatever context they were allocated in, as in Intel's driver, which has one table for all.
//!
//! Not there: images, samplers, sub-devices, physical and virtual memory, copies of regions, timestamps, metrics, the tools
//! API, extensions.

mod entry;

mod command;
mod device;
mod event;
mod memory;
mod module;
