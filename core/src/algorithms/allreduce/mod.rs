//! Allreduce.

pub mod knomial_tree;
pub mod rabenseifner;
pub mod recursive_doubling;
pub mod ring;
