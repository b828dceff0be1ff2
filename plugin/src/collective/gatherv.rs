//! MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init.

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
        scount: c_int,
        sdtype: MpiDatatype,
        rbuf: *mut c_void,
        rcounts: *const c_int,
        displacements: *const c_int,
        rdtype: MpiDatatype,
        root: c_int,
    ) => translate, quick: crate::quick::gatherv
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
    root_rank: c_int,
) -> Result<Prepared, c_int> {
    let group = state.group;
    let root = root(group, root_rank);
    let (at_root, inter) = (is_root(group, root), group.remote_size.is_some());
    let in_place = at_root && !inter && is_in_place(sbuf);
    let (mut input, mut send) = (View::none(), no_blocks());
    let (mut output, mut recv) = (View::none(), no_blocks());
    if takes_part(root) && !(at_root && inter) && !in_place {
        // SAFETY: Open MPI passes a live handle where this rank sends.
        let sent = Elements::of(sbuf, count(scount), unsafe { DatatypeRef::from_raw(sdtype) });
        (input, send) = (View::of(sent)?, one_block(sent.bytes()));
    }
    if at_root {
        // SAFETY: Open MPI passes a live handle and arrays with an entry per peer at the root.
        let received = unsafe {
            runs(rbuf, rcounts, displacements, DatatypeRef::from_raw(rdtype), peers(group))
        };
        let (view, blocks) = View::blocks(&received)?;
        if !inter && !in_place {
            same_bytes(send[0].len, blocks[group.rank.index()].len)?;
        }
        (output, recv) = (view, blocks);
    }
    let settings = &Plugin::get().settings;
    let layout = Layout::Blocks { send, recv };
    Ok(Prepared::movement(Collective::Gatherv, group, settings, layout)
        .root(root)
        .in_place(in_place)
        .input(input)
        .output(output))
}
