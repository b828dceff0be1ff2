//! Barrier.

pub mod dissemination;
