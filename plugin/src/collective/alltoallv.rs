//! MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init.

use std::ffi::c_void;
use std::os::raw::c_int;
use std::sync::Arc;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, is_in_place};

use super::arguments::{MpiDatatype, peers, runs, same_bytes};
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
    ) => translate, quick: crate::quick::alltoallv
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
    let group = state.group;
    let n = peers(group);
    // SAFETY: Open MPI passes a live handle and arrays with an entry per peer.
    let received = unsafe { runs(rbuf, rcounts, rdispls, DatatypeRef::from_raw(rdtype), n) };
    let (output, recv) = View::blocks(&received)?;
    let in_place = is_in_place(sbuf);
    let (input, send) = if in_place {
        (View::none(), Arc::clone(&recv))
    } else {
        // SAFETY: Open MPI passes a live handle and arrays with an entry per peer.
        let sent =
            unsafe { runs(sbuf.cast_mut(), scounts, sdispls, DatatypeRef::from_raw(sdtype), n) };
        let (view, blocks) = View::blocks(&sent)?;
        if group.remote_size.is_none() {
            same_bytes(blocks[group.rank.index()].len, recv[group.rank.index()].len)?;
        }
        (view, blocks)
    };
    let settings = &Plugin::get().settings;
    let layout = Layout::Blocks { send, recv };
    Ok(Prepared::movement(Collective::Alltoallv, group, settings, layout)
        .in_place(in_place)
        .input(input)
        .output(output))
}
