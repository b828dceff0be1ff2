//! The HIP runtime API on host memory: a `libamdhip64.so.6` for tests on machines without a GPU.
//!
//! What it does follows HIP's documentation for ROCm 6; `hetccl_emulated_device` says how, and which settings there are.
//! Put on `LD_LIBRARY_PATH` by `cargo xtask emulate`, it serves any program written to the runtime API.
//!
//! | file | functions |
//! |---|---|
//! | `entry.rs` | what happens around each call |
//! | `device.rs` | `hipInit`, `hipDevice*`, properties |
//! | `memory.rs`, `copy.rs`, `virtual_memory.rs` | `hipMalloc*`, `hipHost*`, `hipPointer*`, `hipMemcpy*`, `hipMemset*`, `hipMemCreate` |
//! | `stream.rs`, `ipc.rs` | `hipStream*`, `hipEvent*`, `hipLaunchHostFunc`, `hipIpc*` |
//! | `graph.rs` | stream capture, `hipGraph*` of what was captured, `hipUserObject*` |
//! | `module.rs` | `hipModule*` |
//! | `error.rs` | `hipGetLastError`, error names, `hipGetProcAddress` |
//!
//! Where HIP differs from CUDA, so does this: no contexts, a second opening of a memory handle gives a second address,
//! memory handles are of base addresses only, `hipMalloc` of nothing succeeds, errors are kept for `hipGetLastError`.
//!
//! Not there: arrays, textures, graphs that are built by hand (but for host nodes that wait for nothing), contexts, `hipLaunchKernel` (kernels that the compiler registers),
//! occupancy beyond a constant, launch parameters in a buffer (`extra`).

mod entry;

mod copy;
mod device;
mod error;
mod graph;
mod ipc;
mod memory;
mod module;
mod stream;
mod virtual_memory;
