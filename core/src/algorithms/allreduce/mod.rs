//! Allreduce.

pub mod recursive_doubling;
