//! The neighbourhood collectives.

pub mod linear;
