//! MPI_Reduce, MPI_Ireduce, MPI_Reduce_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, OpRef};

use super::arguments::{MpiDatatype, MpiOp, count, is_root, root, shares_buffer, takes_part};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (
        sbuf: *const c_void,
        rbuf: *mut c_void,
        n: c_int,
        datatype: MpiDatatype,
        op: MpiOp,
        root: c_int,
    ) => translate, quick: crate::quick::reduce
}

unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
    root_rank: c_int,
) -> Result<Prepared, c_int> {
    let group = state.group;
    let root = root(group, root_rank);
    let settings = &Plugin::get().settings;
    if !takes_part(root) {
        let layout = Layout::uniform(0);
        return Ok(Prepared::movement(Collective::Reduce, group, settings, layout).root(root));
    }
    // SAFETY: Open MPI passes live handles.
    let (datatype, op) = unsafe { (DatatypeRef::from_raw(datatype), OpRef::from_raw(op)) };
    let at_root = is_root(group, root);
    let in_place = at_root && group.remote_size.is_none() && shares_buffer(sbuf, rbuf);
    let layout = Layout::uniform(count(n));
    let mut prepared =
        Prepared::reduction(Collective::Reduce, group, settings, layout, op, datatype)
            .root(root)
            .in_place(in_place);
    // The root of an inter-communicator contributes nothing.
    let contributes = !at_root || group.remote_size.is_none();
    if contributes && !in_place {
        prepared = prepared.input(View::of(Elements::of(sbuf, count(n), datatype))?);
    }
    if at_root {
        prepared = prepared.output(View::of(Elements::at(rbuf, count(n), datatype))?);
    }
    Ok(prepared)
}
