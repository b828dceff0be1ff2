//! What the exported functions do.

pub mod collective;
pub mod communicator;

use crate::{Failure, group};

/// Opens a group.
///
/// # Errors
/// None.
pub fn group_start() -> Result<(), Failure> {
    group::start();
    Ok(())
}

/// Closes a group.
///
/// # Errors
/// No group is open, or the first failure of its calls.
pub fn group_end() -> Result<(), Failure> {
    group::end()
}
