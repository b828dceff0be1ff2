//! MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, is_in_place};

use super::arguments::{MpiDatatype, count, no_blocks, one_block, peers, runs, same_bytes};
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
    ) => translate, quick: crate::quick::allgatherv
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
    let group = state.group;
    // SAFETY: Open MPI passes a live handle and arrays with an entry per peer.
    let received =
        unsafe { runs(rbuf, rcounts, displacements, DatatypeRef::from_raw(rdtype), peers(group)) };
    let (output, recv) = View::blocks(&received)?;
    let in_place = is_in_place(sbuf);
    let (input, send) = if in_place {
        (View::none(), no_blocks())
    } else {
        // SAFETY: Open MPI passes a live handle.
        let elements = Elements::of(sbuf, count(scount), unsafe { DatatypeRef::from_raw(sdtype) });
        if group.remote_size.is_none() {
            same_bytes(elements.bytes(), recv[group.rank.index()].len)?;
        }
        (View::of(elements)?, one_block(elements.bytes()))
    };
    let layout = Layout::Blocks { send, recv };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::Allgatherv, group, settings, layout)
        .in_place(in_place)
        .input(input)
        .output(output))
}
