//! MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init.

use std::ffi::c_void;
use std::os::raw::c_int;
use std::sync::Arc;

use hetccl_core::{Collective, Layout};
use hetccl_mca::is_in_place;

use super::arguments::{MpiDatatype, peers, same_bytes, typed_runs};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::View;

crate::entry::entries! {
    (
        sbuf: *const c_void,
        scounts: *const c_int,
        sdispls: *const c_int,
        sdtypes: *const MpiDatatype,
        rbuf: *mut c_void,
        rcounts: *const c_int,
        rdispls: *const c_int,
        rdtypes: *const MpiDatatype,
    ) => translate
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    sdispls: *const c_int,
    sdtypes: *const MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    rdispls: *const c_int,
    rdtypes: *const MpiDatatype,
) -> Result<Prepared, c_int> {
    let group = state.group;
    let n = peers(group);
    // SAFETY: Open MPI passes live handles and arrays with an entry per peer.
    let received = unsafe { typed_runs(rbuf, rcounts, |i| *rdispls.add(i) as isize, rdtypes, n) };
    let (output, recv) = View::blocks(&received)?;
    let in_place = is_in_place(sbuf);
    let (input, send) = if in_place {
        (View::none(), Arc::clone(&recv))
    } else {
        // SAFETY: Open MPI passes live handles and arrays with an entry per peer.
        let sent = unsafe {
            typed_runs(sbuf.cast_mut(), scounts, |i| *sdispls.add(i) as isize, sdtypes, n)
        };
        let (view, blocks) = View::blocks(&sent)?;
        if group.remote_size.is_none() {
            same_bytes(blocks[group.rank.index()].len, recv[group.rank.index()].len)?;
        }
        (view, blocks)
    };
    let settings = &Plugin::get().settings;
    let layout = Layout::Blocks { send, recv };
    Ok(Prepared::movement(Collective::Alltoallw, group, settings, layout)
        .in_place(in_place)
        .input(input)
        .output(output))
}
