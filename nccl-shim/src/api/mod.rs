//! What the exported functions do.

pub mod collective;
pub mod communicator;
pub mod memory;
pub mod parts;
pub mod team;
pub mod window;

use std::ffi::c_int;

use crate::abi::Code;
use crate::delegate::calls;
use crate::{Failure, Library, group};

/// Opens a group.
///
/// # Errors
/// None.
pub fn group_start(library: Library) -> Result<c_int, Failure> {
    group::start();
    calls::group_start(library);
    Ok(Code::Success as c_int)
}

/// Closes a group: hetccl's part of it, then that of the vendor's library, whose code it gives.
///
/// # Errors
/// No group is open, or the first failure of its calls.
pub fn group_end(library: Library) -> Result<c_int, Failure> {
    let own = group::end();
    let vendors = calls::group_end(library);
    own.map(|()| vendors)
}
