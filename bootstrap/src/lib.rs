//! How the ranks of a communicator find each other when they share nothing but a unique id.
//!
//! One process makes a [`UniqueId`] and hands its 128 bytes to the others by whatever means the program has. Every rank
//! then calls [`Bootstrap::join`]; afterwards ranks exchange small things (addresses, handles) over TCP: an allgather, a
//! barrier, messages between two ranks, and groups of some of the ranks.
//!
//! ```text
//! join       each rank opens one short connection to the root, which numbers the ranks as they arrive and answers at
//!            once: "you are the n-th; your parent is the ((n-1)/8)-th, at these addresses". The root holds no connection
//!            but that of the first to arrive, which it tells when something goes wrong
//! tree       each rank connects to its parent: at most 8 children, 1 parent, whatever the number of ranks
//! table      everybody's addresses go up the tree, and the whole table comes down
//! many ids   ranks are split among the roots in equal parts; the first to arrive at each root join once more, at the
//!            first root, and connect the trees
//! ```
//!
//! A thread watches over the trees of all groups of the process: a rank whose connection ends, or that does not even say that
//! it is there, has failed, and the others are told. [`Bootstrap::failure`] says so, and every call of the group.
//!
//! A process listens on one port for everything: its ids, its ranks' children, messages. The thread that serves it sleeps
//! when nothing comes. Nothing here needs a GPU, UCX or MPI; everything blocks, with a time limit, and
//! [`Bootstrap::abort`] ends it from another thread.
//!
//! Bytes on the wire are the same for all builds of one [`VERSION`], and ranks of different releases are refused. The secret in
//! the id keeps strangers and stray connections out of a job: both sides prove that they know it, and it is never sent. It
//! is not encryption.
#![forbid(unsafe_code)]

mod config;
mod connect;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod group;
mod handshake;
mod hub;
mod id;
mod interfaces;
mod join;
mod mailbox;
mod tree;
mod watch;
mod wire;

pub use config::{Config, Family, Filter};
pub use error::{Attempt, Error, Failure, Result};
pub use group::{Bootstrap, MOST_MESSAGE_BYTES};
pub use id::{UNIQUE_ID_BYTES, UniqueId};
pub use interfaces::{Address, addresses};
pub use wire::VERSION;
