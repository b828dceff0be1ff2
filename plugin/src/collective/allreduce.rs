//! MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::Collective;

use super::arguments::{MpiDatatype, MpiOp};
use super::whole_vector::{self, Arguments};
use crate::module::ModuleState;
use crate::prepared::Prepared;

crate::entry::entries! {
    (sbuf: *const c_void, rbuf: *mut c_void, n: c_int, datatype: MpiDatatype, op: MpiOp) => translate, quick: crate::quick::allreduce
}

unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Result<Prepared, c_int> {
    let arguments = Arguments { sbuf, rbuf, n, datatype, op };
    // SAFETY: Open MPI passes live handles.
    unsafe { whole_vector::translate(state, Collective::Allreduce, arguments) }
}
