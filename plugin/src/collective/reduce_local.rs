//! MPI_Reduce_local: no messages, no schedule; Open MPI's own function does it, on host copies of device buffers.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_mca::{DatatypeRef, OpRef, sys};

use super::arguments::{MpiDatatype, MpiOp, count};
use crate::device::Mirror;
use crate::status;
use crate::view::Elements;

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
    // SAFETY: Open MPI passes live handles.
    let (op, datatype) = unsafe { (OpRef::from_raw(op), DatatypeRef::from_raw(datatype)) };
    let call = std::panic::AssertUnwindSafe(|| {
        let (left, inout) =
            (Elements::of(left, count(n), datatype), Elements::at(inout, count(n), datatype));
        // SAFETY: Open MPI passes buffers of `n` elements.
        unsafe { reduce(op, left, inout) }
    });
    match std::panic::catch_unwind(call) {
        Ok(result) => result.map_or_else(|code| code, |()| status::SUCCESS),
        Err(_) => sys::MPI_ERR_INTERN as c_int,
    }
}

/// # Safety
/// Both hold as many elements of the same datatype as they say.
unsafe fn reduce(op: OpRef, left: Elements, inout: Elements) -> Result<(), c_int> {
    let (mut left, mut inout) =
        (Mirror::of(left, left.memory()?)?, Mirror::of(inout, inout.memory()?)?);
    let Elements { count, datatype, .. } = inout.elements;
    // SAFETY: the caller's promise; mirrors hold copies of the elements.
    unsafe { op.reduce(left.address(), inout.address(), count, datatype) };
    inout.store()
}
