//! MPI_Allgather, MPI_Iallgather, MPI_Allgather_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};
use hetccl_mca::{DatatypeRef, is_in_place};

use super::arguments::{MpiDatatype, count, peers, same_bytes};
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
    ) => translate, quick: crate::quick::allgather
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
    let group = state.group;
    // SAFETY: Open MPI passes a live handle.
    let rdtype = unsafe { DatatypeRef::from_raw(rdtype) };
    let output = Elements::at(rbuf, count(rcount) * peers(group), rdtype);
    let block = count(rcount) * rdtype.size_bytes();
    let in_place = is_in_place(sbuf);
    let (input, sent) = if in_place {
        (View::none(), block)
    } else {
        // SAFETY: Open MPI passes a live handle.
        let elements = Elements::of(sbuf, count(scount), unsafe { DatatypeRef::from_raw(sdtype) });
        (View::of(elements)?, elements.bytes())
    };
    if group.remote_size.is_none() {
        same_bytes(sent, block)?;
    }
    let layout = Layout::Uniform { count: sent, remote_count: block };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::Allgather, group, settings, layout)
        .in_place(in_place)
        .input(input)
        .output(View::of(output)?))
}
