//! The reductions whose result is as long as each contribution: allreduce, scan and exscan.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, OpRef};

use super::arguments::{MpiDatatype, MpiOp, count, shares_buffer};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

/// MPI's arguments.
pub(super) struct Arguments {
    pub(super) sbuf: *const c_void,
    pub(super) rbuf: *mut c_void,
    pub(super) n: c_int,
    pub(super) datatype: MpiDatatype,
    pub(super) op: MpiOp,
}

/// # Errors
/// An MPI error class.
///
/// # Safety
/// The handles are live.
pub(super) unsafe fn translate(
    state: &ModuleState,
    collective: Collective,
    arguments: Arguments,
) -> Result<Prepared, c_int> {
    let Arguments { sbuf, rbuf, n, datatype, op } = arguments;
    // SAFETY: the caller's promise.
    let (datatype, op) = unsafe { (DatatypeRef::from_raw(datatype), OpRef::from_raw(op)) };
    let (shared, inter) = (shares_buffer(sbuf, rbuf), state.group.remote_size.is_some());
    let in_place = shared && !inter;
    let input = match (shared, inter) {
        (false, _) => View::of(Elements::of(sbuf, count(n), datatype))?,
        (true, false) => View::none(),
        // MPI has no such call, but Open MPI 5 makes it itself, in MPI_Comm_split_type.
        (true, true) => View::copy_of(Elements::at(rbuf, count(n), datatype))?,
    };
    let settings = &Plugin::get().settings;
    let layout = Layout::uniform(count(n));
    Ok(Prepared::reduction(collective, state.group, settings, layout, op, datatype)
        .in_place(in_place)
        .input(input)
        .output(View::of(Elements::at(rbuf, count(n), datatype))?))
}
