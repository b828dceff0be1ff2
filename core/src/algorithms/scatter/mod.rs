//! Scatter and scatterv.

pub mod binomial;
pub mod linear;
