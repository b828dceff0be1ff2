//! MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::DatatypeRef;

use super::arguments::{MpiDatatype, neighbours, runs, without_null};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::View;

crate::entry::entries! {
    (
        sbuf: *const c_void,
        scounts: *const c_int,
        sdispls: *const c_int,
        sdtype: MpiDatatype,
        rbuf: *mut c_void,
        rcounts: *const c_int,
        rdispls: *const c_int,
        rdtype: MpiDatatype,
    ) => translate
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    sdispls: *const c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    rdispls: *const c_int,
    rdtype: MpiDatatype,
) -> Result<Prepared, c_int> {
    let neighbours = neighbours(state)?;
    let (outs, ins) = (neighbours.destinations.len(), neighbours.sources.len());
    // SAFETY: Open MPI passes live handles and arrays with an entry per neighbour.
    let (sent, received) = unsafe {
        (
            runs(sbuf.cast_mut(), scounts, sdispls, DatatypeRef::from_raw(sdtype), outs),
            runs(rbuf, rcounts, rdispls, DatatypeRef::from_raw(rdtype), ins),
        )
    };
    let (input, send) = View::blocks(&without_null(sent, &neighbours.destinations))?;
    let (output, recv) = View::blocks(&without_null(received, &neighbours.sources))?;
    let layout = Layout::Blocks { send, recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::NeighborAlltoallv, state.group, settings, layout)
        .neighbours(neighbours)
        .input(input)
        .output(output))
}
