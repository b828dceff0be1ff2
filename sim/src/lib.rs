//! N ranks in one process: the engine that runs in production, on a transport and devices that exist only here.
//!
//! A [`Simulation`] takes the calls of all ranks and an algorithm and runs every rank's schedule in virtual time. Messages
//! take `latency + bytes / bandwidth` plus a random delay, and overtake each other wherever a transport may let them; the
//! order in which ranks get to run is random as well. Everything follows from one seed. A peer may be lost at any
//! moment: then every other rank must end, with its result or with an error, in bounded virtual time.
//!
//! Memory is real bytes in an arena per rank, reductions compute real numbers, so a run's result is a result.
//!
//! The cost model is the usual one (alpha for latency, beta for bytes, gamma for reduced bytes): R. Hockney, "The
//! Communication Challenge for MPP", Parallel Computing 20(3), 1994.
#![forbid(unsafe_code)]

pub mod cluster;
mod groups;
mod memory;
mod network;
mod rank;
mod simulation;
pub mod study;
pub mod timed;

pub use memory::{Arithmetic, Memory};
pub use simulation::{Config, Failure, LOOK_NS, Loss, Outcome, RankResult, Simulation};
