//! MPI_Reduce_local: no messages, no schedule; Open MPI's own function does it.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_mca::{DatatypeRef, OpRef, sys};

use super::arguments::{MpiDatatype, MpiOp, count};
use crate::status;

/// # Safety
/// Called by Open MPI with arguments that it has checked.
pub(crate) unsafe extern "C" fn reduce_local(
    left: *const c_void,
    inout: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
    _module: *mut sys::mca_coll_base_module_t,
) -> c_int {
    // SAFETY: Open MPI passes live handles and buffers of `n` elements.
    unsafe {
        let datatype = DatatypeRef::from_raw(datatype);
        OpRef::from_raw(op).reduce(left, inout, count(n), datatype);
    }
    status::SUCCESS
}
