//! MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, OpRef};

use super::arguments::{MpiDatatype, MpiOp, count, shares_buffer};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (sbuf: *const c_void, rbuf: *mut c_void, n: c_int, datatype: MpiDatatype, op: MpiOp) => translate
}

unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Result<Prepared, c_int> {
    // SAFETY: Open MPI passes live handles.
    let (datatype, op) = unsafe { (DatatypeRef::from_raw(datatype), OpRef::from_raw(op)) };
    let in_place = shares_buffer(sbuf, rbuf);
    let input =
        if in_place { View::none() } else { View::of(Elements::of(sbuf, count(n), datatype)) };
    let settings = &Plugin::get().settings;
    let layout = Layout::uniform(count(n));
    Ok(Prepared::reduction(Collective::Allreduce, state.group, settings, layout, op, datatype)
        .in_place(in_place)
        .input(input)
        .output(View::of(Elements::at(rbuf, count(n), datatype))))
}
