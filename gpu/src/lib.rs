//! GPU memory of several vendors in one process.
//!
//! [`Gpus`] finds the drivers at run time (a host without one is normal), says where an address lives, copies, reduces,
//! and shares allocations with other processes. Each vendor is one folder that implements [`Driver`] and a line in
//! `vendor.rs`; nothing else knows which vendors there are.
//!
//! Work is queued on streams of the library's own and finished when its event says so: nothing here waits, except
//! where its documentation says so. Work that the program queued before a collective, on the default stream or on any
//! stream that is ordered with it, is finished before a buffer is read ([`Gpus::after_application`]), as `cudaMemcpy`
//! would have it.
//!
//! [`VendorCcl`] is a vendor's own collective library, in a table that nothing else sees; [`CclComm`] a communicator of it, for the
//! collectives inside a vendor group.

mod block;
mod ccl;
mod ccl_comm;
mod cuda;
mod driver;
mod error;
mod foreign;
mod gpus;
mod hip;
mod host;
mod ipc;
mod kernels;
mod level_zero;
mod marks;
mod ring;
mod spare;
mod vendor;

pub use block::Block;
pub use ccl::{CclError, VendorCcl, version_text};
pub use ccl_comm::CclComm;
pub use driver::{
    Callback, CaptureMode, Context, DeviceInfo, Driver, Event, Function, GraphHooks,
    IPC_HANDLE_BYTES, IpcHandle, Launch, Place, Recording, Relaxed, Stream,
};
pub use error::Error;
pub use gpus::{Gpus, Lane, Order, Usage, device_number};
pub use host::is_surely_host;
pub use ipc::{Exported, host_id};
pub use kernels::{Change, Fold, LoadedKernels, MOST_INPUTS, MapType};
pub use ring::{NoRing, RemoteRing, Ring, RingName, SLOTS};
pub use vendor::Vendor;
