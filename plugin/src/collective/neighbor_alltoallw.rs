//! MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};

use super::arguments::{MpiDatatype, neighbours, typed_runs, without_null};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::View;

crate::entry::entries! {
    (
        sbuf: *const c_void,
        scounts: *const c_int,
        sdispls: *const isize,
        sdtypes: *const MpiDatatype,
        rbuf: *mut c_void,
        rcounts: *const c_int,
        rdispls: *const isize,
        rdtypes: *const MpiDatatype,
    ) => translate
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    sdispls: *const isize,
    sdtypes: *const MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    rdispls: *const isize,
    rdtypes: *const MpiDatatype,
) -> Result<Prepared, c_int> {
    let neighbours = neighbours(state)?;
    let (outs, ins) = (neighbours.destinations.len(), neighbours.sources.len());
    // SAFETY: Open MPI passes live handles and arrays with an entry per neighbour.
    let (sent, received) = unsafe {
        (
            typed_runs(sbuf.cast_mut(), scounts, |i| *sdispls.add(i), sdtypes, outs),
            typed_runs(rbuf, rcounts, |i| *rdispls.add(i), rdtypes, ins),
        )
    };
    let (input, send) = View::blocks(&without_null(sent, &neighbours.destinations))?;
    let (output, recv) = View::blocks(&without_null(received, &neighbours.sources))?;
    let layout = Layout::Blocks { send, recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::NeighborAlltoallw, state.group, settings, layout)
        .neighbours(neighbours)
        .input(input)
        .output(output))
}
