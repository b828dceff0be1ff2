//! Scan and exscan.

pub mod linear;
pub mod recursive_doubling;

use crate::call::Collective;

const BOTH: &[Collective] = &[Collective::Scan, Collective::Exscan];
