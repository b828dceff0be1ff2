//! MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::DatatypeRef;

use super::arguments::{MpiDatatype, count, equal_runs, neighbours, without_null};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::View;

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
    let sent = equal_runs(sbuf.cast_mut(), count(scount), sdtype, neighbours.destinations.len());
    let received = equal_runs(rbuf, count(rcount), rdtype, neighbours.sources.len());
    let (input, send) = View::blocks(&without_null(sent, &neighbours.destinations))?;
    let (output, recv) = View::blocks(&without_null(received, &neighbours.sources))?;
    let layout = Layout::Blocks { send, recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::NeighborAlltoall, state.group, settings, layout)
        .neighbours(neighbours)
        .input(input)
        .output(output))
}
