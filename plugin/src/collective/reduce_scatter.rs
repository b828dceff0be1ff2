//! MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Block, Collective, Layout};
use hetccl_mca::{DatatypeRef, OpRef, is_in_place};

use super::arguments::{MpiDatatype, MpiOp, count, one_block};
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;
use crate::view::{Elements, View};

crate::entry::entries! {
    (
        sbuf: *const c_void,
        rbuf: *mut c_void,
        counts: *const c_int,
        datatype: MpiDatatype,
        op: MpiOp,
    ) => translate, quick: crate::quick::reduce_scatter
}

unsafe fn translate(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    counts: *const c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Result<Prepared, c_int> {
    // SAFETY: Open MPI passes live handles.
    let (datatype, op) = unsafe { (DatatypeRef::from_raw(datatype), OpRef::from_raw(op)) };
    let group = state.group;
    let mut total = 0;
    let blocks: Vec<Block> = (0..group.len())
        .map(|i| {
            // SAFETY: MPI passes a count per rank of the local group.
            let block = Block { start: total, len: count(unsafe { *counts.add(i) }) };
            total += block.len;
            block
        })
        .collect();
    let own = blocks[group.rank.index()].len;
    let in_place = is_in_place(sbuf);
    let layout = Layout::Blocks { send: blocks.into(), recv: one_block(own) };
    let settings = &Plugin::get().settings;
    let prepared =
        Prepared::reduction(Collective::ReduceScatter, group, settings, layout, op, datatype)
            .in_place(in_place);
    Ok(if in_place {
        prepared.output(View::of(Elements::at(rbuf, total, datatype))?)
    } else {
        prepared
            .input(View::of(Elements::of(sbuf, total, datatype))?)
            .output(View::of(Elements::at(rbuf, own, datatype))?)
    })
}
