//! MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::DatatypeRef;

use super::arguments::{MpiDatatype, count, equal_runs, neighbours, one_block, without_null};
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
        rcount: c_int,
        rdtype: MpiDatatype,
    ) => translate
}

unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
) -> Result<Prepared, c_int> {
    let neighbours = neighbours(state)?;
    // SAFETY: Open MPI passes live handles.
    let (sdtype, rdtype) =
        unsafe { (DatatypeRef::from_raw(sdtype), DatatypeRef::from_raw(rdtype)) };
    let sent = Elements::of(sbuf, count(scount), sdtype);
    let received = equal_runs(rbuf, count(rcount), rdtype, neighbours.sources.len());
    let (output, recv) = View::blocks(&without_null(received, &neighbours.sources))?;
    let layout = Layout::Blocks { send: one_block(sent.bytes()), recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::NeighborAllgather, state.group, settings, layout)
        .neighbours(neighbours)
        .input(View::of(sent)?)
        .output(output))
}
