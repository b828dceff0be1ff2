//! The CUDA driver API on host memory: a `libcuda.so.1` for tests on machines without a GPU.
//!
//! What it does follows CUDA's documentation; `hetccl_emulated_device` says how, and which settings there are. Put on
//! `LD_LIBRARY_PATH` by `cargo xtask emulate`, it serves any program written to the driver API.
//!
//! | file | functions |
//! |---|---|
//! | `entry.rs` | how exported functions are written, and what a stream argument means |
//! | `device.rs`, `context.rs` | `cuInit`, `cuDevice*`, `cuCtx*`, `cuDevicePrimaryCtx*` |
//! | `memory.rs`, `pointer.rs`, `copy.rs` | `cuMem*`, `cuPointer*` |
//! | `virtual_memory.rs` | `cuMemCreate`, `cuMemMap` and what belongs to them |
//! | `stream.rs`, `event.rs` | `cuStream*`, `cuEvent*`, `cuLaunchHostFunc` |
//! | `graph.rs` | stream capture, `cuGraph*` of what was captured, `cuUserObject*` |
//! | `ipc.rs` | `cuIpc*` |
//! | `module.rs` | `cuModule*`, `cuLibrary*`, `cuLaunchKernel` |
//! | `lookup.rs` | `cuGetProcAddress`, error names |
//!
//! Not there: arrays, textures, graphs that are built by hand (but for host nodes that wait for nothing), graphics, the linker, occupancy beyond a constant, launch
//! parameters in a buffer (`extra`).

mod entry;

mod context;
mod copy;
mod device;
mod event;
mod graph;
mod ipc;
mod lookup;
mod memory;
mod module;
mod pointer;
mod stream;
mod virtual_memory;
