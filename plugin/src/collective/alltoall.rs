//! MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init.

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
    ) => translate, quick: crate::quick::alltoall
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
    let n = peers(group);
    // SAFETY: Open MPI passes a live handle.
    let rdtype = unsafe { DatatypeRef::from_raw(rdtype) };
    let received = count(rcount) * rdtype.size_bytes();
    let in_place = is_in_place(sbuf);
    let (input, sent) = if in_place {
        (View::none(), received)
    } else {
        // SAFETY: Open MPI passes a live handle.
        let sdtype = unsafe { DatatypeRef::from_raw(sdtype) };
        let elements = Elements::of(sbuf, count(scount) * n, sdtype);
        (View::of(elements)?, count(scount) * sdtype.size_bytes())
    };
    if group.remote_size.is_none() {
        same_bytes(sent, received)?;
    }
    let layout = Layout::Uniform { count: sent, remote_count: received };
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::Alltoall, group, settings, layout)
        .in_place(in_place)
        .input(input)
        .output(View::of(Elements::at(rbuf, count(rcount) * n, rdtype))?))
}
