//! MPI_Bcast, MPI_Ibcast, MPI_Bcast_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::DatatypeRef;

use super::arguments::{MpiDatatype, count, is_root, root, takes_part};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (buffer: *mut c_void, n: c_int, datatype: MpiDatatype, root: c_int) => translate, quick: crate::quick::bcast
}

unsafe fn translate(
    state: &ModuleState,
    buffer: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    root_rank: c_int,
) -> Result<Prepared, c_int> {
    let root = root(state.group, root_rank);
    let settings = &Plugin::get().settings;
    if !takes_part(root) {
        let layout = Layout::uniform(0);
        return Ok(Prepared::movement(Collective::Bcast, state.group, settings, layout).root(root));
    }
    // SAFETY: Open MPI passes a live handle.
    let elements = Elements::at(buffer, count(n), unsafe { DatatypeRef::from_raw(datatype) });
    let layout = Layout::uniform(elements.bytes());
    let prepared = Prepared::movement(Collective::Bcast, state.group, settings, layout).root(root);
    Ok(if is_root(state.group, root) {
        prepared.input(View::of(elements)?)
    } else {
        prepared.output(View::of(elements)?)
    })
}
