//! MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, is_in_place};

use super::arguments::{
    MpiDatatype, count, is_root, no_blocks, one_block, peers, root, runs, same_bytes, takes_part,
};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (
        sbuf: *const c_void,
        scounts: *const c_int,
        displacements: *const c_int,
        sdtype: MpiDatatype,
        rbuf: *mut c_void,
        rcount: c_int,
        rdtype: MpiDatatype,
        root: c_int,
    ) => translate, quick: crate::quick::scatterv
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    displacements: *const c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
    root_rank: c_int,
) -> Result<Prepared, c_int> {
    let group = state.group;
    let root = root(group, root_rank);
    let (at_root, inter) = (is_root(group, root), group.remote_size.is_some());
    let in_place = at_root && !inter && is_in_place(rbuf);
    let (mut input, mut send) = (View::none(), no_blocks());
    let (mut output, mut recv) = (View::none(), no_blocks());
    if takes_part(root) && !(at_root && inter) && !in_place {
        // SAFETY: Open MPI passes a live handle where this rank receives.
        let received = Elements::at(rbuf, count(rcount), unsafe { DatatypeRef::from_raw(rdtype) });
        (output, recv) = (View::of(received)?, one_block(received.bytes()));
    }
    if at_root {
        // SAFETY: Open MPI passes a live handle and arrays with an entry per peer at the root.
        let sent = unsafe {
            let datatype = DatatypeRef::from_raw(sdtype);
            runs(sbuf.cast_mut(), scounts, displacements, datatype, peers(group))
        };
        let (view, blocks) = View::blocks(&sent)?;
        if !inter && !in_place {
            same_bytes(blocks[group.rank.index()].len, recv[0].len)?;
        }
        (input, send) = (view, blocks);
    }
    let settings = &Plugin::get().settings;
    let layout = Layout::Blocks { send, recv };
    Ok(Prepared::movement(Collective::Scatterv, group, settings, layout)
        .root(root)
        .in_place(in_place)
        .input(input)
        .output(output))
}
