//! Gather and gatherv.

pub mod binomial;
pub mod linear;
