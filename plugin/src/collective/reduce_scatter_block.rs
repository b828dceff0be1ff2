//! MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, OpRef, is_in_place};

use super::arguments::{MpiDatatype, MpiOp, count};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (sbuf: *const c_void, rbuf: *mut c_void, n: c_int, datatype: MpiDatatype, op: MpiOp) => translate, quick: crate::quick::reduce_scatter_block
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
    let group = state.group;
    let (block, total) = (count(n), count(n) * group.len());
    let in_place = is_in_place(sbuf);
    let layout = Layout::uniform(block);
    let settings = &Plugin::get().settings;
    let prepared =
        Prepared::reduction(Collective::ReduceScatterBlock, group, settings, layout, op, datatype)
            .in_place(in_place);
    Ok(if in_place {
        prepared.output(View::of(Elements::at(rbuf, total, datatype))?)
    } else {
        prepared
            .input(View::of(Elements::of(sbuf, total, datatype))?)
            .output(View::of(Elements::at(rbuf, block, datatype))?)
    })
}
