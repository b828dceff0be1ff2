//! MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::DatatypeRef;

use super::arguments::{MpiDatatype, count, neighbours, one_block, runs, without_null};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (
        sbuf: *const c_void,
        scount: c_int,
        sdtype: MpiDatatype,
        rbuf: *mut c_void,
        rcounts: *const c_int,
        displacements: *const c_int,
        rdtype: MpiDatatype,
    ) => translate
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    displacements: *const c_int,
    rdtype: MpiDatatype,
) -> Result<Prepared, c_int> {
    let neighbours = neighbours(state)?;
    // SAFETY: Open MPI passes live handles.
    let (sdtype, rdtype) =
        unsafe { (DatatypeRef::from_raw(sdtype), DatatypeRef::from_raw(rdtype)) };
    let sent = Elements::of(sbuf, count(scount), sdtype);
    // SAFETY: MPI passes arrays with an entry per source.
    let received = unsafe { runs(rbuf, rcounts, displacements, rdtype, neighbours.sources.len()) };
    let (output, recv) = View::blocks(&without_null(received, &neighbours.sources))?;
    let layout = Layout::Blocks { send: one_block(sent.bytes()), recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::NeighborAllgatherv, state.group, settings, layout)
        .neighbours(neighbours)
        .input(View::of(sent)?)
        .output(output))
}
