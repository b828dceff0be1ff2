//! MPI_Scatter, MPI_Iscatter, MPI_Scatter_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, is_in_place};

use super::arguments::{MpiDatatype, count, is_root, peers, root, same_bytes, takes_part};
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
        root: c_int,
    ) => translate, quick: crate::quick::scatter
}

#[allow(clippy::too_many_arguments)]
unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
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
    let (mut input, mut output) = (View::none(), View::none());
    let mut block = 0;
    if takes_part(root) && !(at_root && inter) && !in_place {
        // SAFETY: Open MPI passes a live handle where this rank receives.
        let received = Elements::at(rbuf, count(rcount), unsafe { DatatypeRef::from_raw(rdtype) });
        (output, block) = (View::of(received)?, received.bytes());
    }
    if at_root {
        // SAFETY: Open MPI passes a live handle at the root.
        let datatype = unsafe { DatatypeRef::from_raw(sdtype) };
        input = View::of(Elements::of(sbuf, count(scount) * peers(group), datatype))?;
        let sent = count(scount) * datatype.size_bytes();
        if !inter && !in_place {
            same_bytes(sent, block)?;
        }
        block = sent;
    }
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::Scatter, group, settings, Layout::uniform(block))
        .root(root)
        .in_place(in_place)
        .input(input)
        .output(output))
}
