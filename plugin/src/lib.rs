//! hetccl as Open MPI's collective component: `mpirun --mca coll hetccl`.
//!
//! Every MPI call is translated into one [`hetccl_runtime`] request and its outcome into an MPI error class. The way of a
//! call: [`collective`] (one file per collective: arguments to [`Prepared`](prepared::Prepared)), [`execute`] (blocking,
//! nonblocking, persistent), [`status`]. [`component`] and [`module`] are what Open MPI sees.

mod agreement;
mod collective;
mod component;
mod device;
mod entry;
mod execute;
mod module;
mod prepared;
mod quick;
mod reduction;
mod shared;
mod state;
mod status;
mod view;
mod watch;
mod wire;

pub use component::mca_coll_hetccl_component;
