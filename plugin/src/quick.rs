//! The short way of a blocking collective into shared memory: buffers of MPI's own datatypes without gaps, straight to the
//! lane, with nothing built, locked or looked up on the way.
//!
//! Each function answers `None` where the call is not of that kind; it then goes the usual way, which ends in the same lane.
//! So every rank may choose for itself: what the others see is the same.

use std::ffi::c_void;
use std::os::raw::c_int;

use hetccl_core::{Collective, Datatype, ReductionOp};
use hetccl_mca::{DatatypeRef, OpRef, is_in_place};
use hetccl_runtime::shared::LaneError;
use hetccl_runtime::shared::blocking::Lane;

use crate::collective::{MpiDatatype, MpiOp, shares_buffer};
use crate::module::ModuleState;
use crate::{shared, status};
use hetccl_runtime::watch::CallWord;

/// A lane, and what was asked of it last.
#[derive(Debug)]
pub(crate) struct Quick {
    pub(crate) lane: Lane,
    /// The last operation and datatype, MPI's own ones, and what they are.
    memo: (MpiOp, MpiDatatype, (ReductionOp, Datatype)),
}

// SAFETY: the handles are only compared.
unsafe impl Send for Quick {}

impl Quick {
    pub(crate) fn new(lane: Lane) -> Quick {
        let nothing = (ReductionOp::Sum, Datatype::Float64);
        Quick { lane, memo: (std::ptr::null_mut(), std::ptr::null_mut(), nothing) }
    }

    /// The engine's word for MPI's own operation and datatype.
    ///
    /// # Safety
    /// The handles are live.
    #[inline]
    unsafe fn fold(&mut self, op: MpiOp, datatype: MpiDatatype) -> Option<(ReductionOp, Datatype)> {
        if (self.memo.0, self.memo.1) == (op, datatype) {
            return Some(self.memo.2);
        }
        // SAFETY: the caller's promise.
        let (known_op, known) =
            unsafe { (OpRef::from_raw(op).kind()?, DatatypeRef::from_raw(datatype).kind()?) };
        if !crate::reduction::defined(known_op, known) {
            return None;
        }
        self.memo = (op, datatype, (known_op, known));
        Some(self.memo.2)
    }
}

/// Bytes of an element of one of MPI's own datatypes that has no gaps.
///
/// # Safety
/// The handle is live.
#[inline]
unsafe fn size(datatype: MpiDatatype) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe { DatatypeRef::from_raw(datatype) }.plain_bytes()
}

#[inline]
fn end(
    state: &ModuleState,
    collective: Collective,
    outcome: Result<(), LaneError>,
) -> Option<c_int> {
    match outcome {
        Ok(()) => {
            if let Some(watch) = &state.watch {
                watch.end_last();
            }
            Some(status::SUCCESS)
        }
        Err(error) => Some(shared::report(state, collective, &error)),
    }
}

/// Writes the call down, for the other ranks to see.
#[inline]
fn begin(state: &ModuleState, quick: &mut Quick, call: CallWord, bytes: usize) {
    if let Some(watch) = &state.watch {
        watch.begin(0, call, bytes);
        if watch.compares() {
            quick.lane.next_is(call);
        }
    }
}

/// Where a reduction's own contribution is.
#[inline]
fn input(sbuf: *const c_void, rbuf: *mut c_void) -> *const c_void {
    if is_in_place(sbuf) { rbuf.cast_const() } else { sbuf }
}

#[inline]
fn count(n: c_int) -> usize {
    n.max(0) as usize
}

// Every function below is called by its collective's blocking entry with Open MPI's checked arguments, on the communicator of
// `state`: that is what makes the handles live, the buffers valid, and the lane this thread's until it returns.

/// # Safety
/// Called by the entry of MPI_Barrier.
#[inline]
pub(crate) unsafe fn barrier(state: &ModuleState) -> Option<c_int> {
    // SAFETY: see above; the same goes for all functions of this file.
    let quick = unsafe { state.share.quick() }?;
    begin(state, quick, CallWord::new(Collective::Barrier), 0);
    end(state, Collective::Barrier, quick.lane.barrier())
}

/// # Safety
/// Called by the entry of MPI_Bcast.
#[inline]
pub(crate) unsafe fn bcast(
    state: &ModuleState,
    buffer: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let bytes = count(n) * size(datatype)?;
        begin(state, quick, CallWord::new(Collective::Bcast).rooted(root as usize), bytes);
        end(state, Collective::Bcast, quick.lane.bcast(buffer.cast(), bytes, root as usize))
    }
}

/// # Safety
/// Called by the entry of MPI_Allreduce.
#[inline]
pub(crate) unsafe fn allreduce(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let fold = quick.fold(op, datatype)?;
        let input = input(sbuf, rbuf);
        begin(
            state,
            quick,
            CallWord::new(Collective::Allreduce).reducing(fold.0, fold.1),
            count(n) * fold.1.size_bytes(),
        );
        let outcome = quick.lane.allreduce(input.cast(), rbuf.cast(), count(n), &fold);
        end(state, Collective::Allreduce, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Reduce.
#[inline]
pub(crate) unsafe fn reduce(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let fold = quick.fold(op, datatype)?;
        let input = input(sbuf, rbuf);
        let root = root as usize;
        begin(
            state,
            quick,
            CallWord::new(Collective::Reduce).reducing(fold.0, fold.1).rooted(root),
            count(n) * fold.1.size_bytes(),
        );
        let outcome = quick.lane.reduce(input.cast(), rbuf.cast(), count(n), &fold, root);
        end(state, Collective::Reduce, outcome)
    }
}

/// # Safety
/// Called by the entries of MPI_Scan and MPI_Exscan.
#[inline]
unsafe fn any_scan(
    state: &ModuleState,
    collective: Collective,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let fold = quick.fold(op, datatype)?;
        let input = if shares_buffer(sbuf, rbuf) { rbuf.cast_const() } else { sbuf };
        let inclusive = collective == Collective::Scan;
        begin(
            state,
            quick,
            CallWord::new(collective).reducing(fold.0, fold.1),
            count(n) * fold.1.size_bytes(),
        );
        let outcome = quick.lane.scan(input.cast(), rbuf.cast(), count(n), &fold, inclusive);
        end(state, collective, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Scan.
#[inline]
pub(crate) unsafe fn scan(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe { any_scan(state, Collective::Scan, sbuf, rbuf, n, datatype, op) }
}

/// # Safety
/// Called by the entry of MPI_Exscan.
#[inline]
pub(crate) unsafe fn exscan(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe { any_scan(state, Collective::Exscan, sbuf, rbuf, n, datatype, op) }
}

/// # Safety
/// Called by the entry of MPI_Reduce_scatter_block.
#[inline]
pub(crate) unsafe fn reduce_scatter_block(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    n: c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let fold = quick.fold(op, datatype)?;
        let input = input(sbuf, rbuf);
        begin(
            state,
            quick,
            CallWord::new(Collective::ReduceScatterBlock).reducing(fold.0, fold.1),
            count(n) * fold.1.size_bytes(),
        );
        let outcome = quick.lane.reduce_scatter(input.cast(), rbuf.cast(), |_| count(n), &fold);
        end(state, Collective::ReduceScatterBlock, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Reduce_scatter.
#[inline]
pub(crate) unsafe fn reduce_scatter(
    state: &ModuleState,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    counts: *const c_int,
    datatype: MpiDatatype,
    op: MpiOp,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let fold = quick.fold(op, datatype)?;
        let input = input(sbuf, rbuf);
        let elements = |rank: usize| count(*counts.add(rank));
        let total: usize = (0..state.group.len()).map(elements).sum();
        begin(
            state,
            quick,
            CallWord::new(Collective::ReduceScatter).reducing(fold.0, fold.1),
            total * fold.1.size_bytes(),
        );
        let outcome = quick.lane.reduce_scatter(input.cast(), rbuf.cast(), elements, &fold);
        end(state, Collective::ReduceScatter, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Allgather.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn allgather(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let block = count(rcount) * size(rdtype)?;
        let own = own_block(sbuf, scount, sdtype, block)?;
        begin(state, quick, CallWord::new(Collective::Allgather), block);
        let outcome = quick.lane.allgather(own, |rank| (at(rbuf, rank * block), block));
        end(state, Collective::Allgather, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Allgatherv.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn allgatherv(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    displacements: *const c_int,
    rdtype: MpiDatatype,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let runs = Runs { base: rbuf, counts: rcounts, displacements, size: size(rdtype)? };
        let own = own_block(sbuf, scount, sdtype, runs.get(state.group.rank.index()).1)?;
        begin(state, quick, CallWord::new(Collective::Allgatherv), 0);
        end(state, Collective::Allgatherv, quick.lane.allgather(own, |rank| runs.get(rank)))
    }
}

/// # Safety
/// Called by the entry of MPI_Gather.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn gather(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let root = root as usize;
        let outcome = if state.group.rank.index() == root {
            let block = count(rcount) * size(rdtype)?;
            let own = own_block(sbuf, scount, sdtype, block)?;
            begin(state, quick, CallWord::new(Collective::Gather).rooted(root), block);
            quick.lane.gather(own, |rank| (at(rbuf, rank * block), block), root, true)
        } else {
            let own = (sbuf.cast(), count(scount) * size(sdtype)?);
            begin(state, quick, CallWord::new(Collective::Gather).rooted(root), own.1);
            quick.lane.gather(own, |_| (std::ptr::null_mut(), 0), root, true)
        };
        end(state, Collective::Gather, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Gatherv.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn gatherv(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    displacements: *const c_int,
    rdtype: MpiDatatype,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let (me, root) = (state.group.rank.index(), root as usize);
        let outcome = if me == root {
            let runs = Runs { base: rbuf, counts: rcounts, displacements, size: size(rdtype)? };
            let own = own_block(sbuf, scount, sdtype, runs.get(me).1)?;
            begin(state, quick, CallWord::new(Collective::Gatherv).rooted(root), 0);
            quick.lane.gather(own, |rank| runs.get(rank), root, false)
        } else {
            let own = (sbuf.cast(), count(scount) * size(sdtype)?);
            begin(state, quick, CallWord::new(Collective::Gatherv).rooted(root), 0);
            quick.lane.gather(own, |_| (std::ptr::null_mut(), 0), root, false)
        };
        end(state, Collective::Gatherv, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Scatter.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn scatter(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let root = root as usize;
        let outcome = if state.group.rank.index() == root {
            let block = count(scount) * size(sdtype)?;
            let own = own_room(rbuf, rcount, rdtype, block)?;
            let from = |rank: usize| (at(sbuf.cast_mut(), rank * block).cast_const(), block);
            begin(state, quick, CallWord::new(Collective::Scatter).rooted(root), block);
            quick.lane.scatter(own, from, root, true)
        } else {
            let own = (rbuf.cast(), count(rcount) * size(rdtype)?);
            begin(state, quick, CallWord::new(Collective::Scatter).rooted(root), own.1);
            quick.lane.scatter(own, |_| (std::ptr::null(), 0), root, true)
        };
        end(state, Collective::Scatter, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Scatterv.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn scatterv(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    displacements: *const c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
    root: c_int,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let (me, root) = (state.group.rank.index(), root as usize);
        let outcome = if me == root {
            let base = sbuf.cast_mut();
            let runs = Runs { base, counts: scounts, displacements, size: size(sdtype)? };
            let own = own_room(rbuf, rcount, rdtype, runs.get(me).1)?;
            begin(state, quick, CallWord::new(Collective::Scatterv).rooted(root), 0);
            quick.lane.scatter(own, |rank| runs.get_const(rank), root, false)
        } else {
            let own = (rbuf.cast(), count(rcount) * size(rdtype)?);
            begin(state, quick, CallWord::new(Collective::Scatterv).rooted(root), 0);
            quick.lane.scatter(own, |_| (std::ptr::null(), 0), root, false)
        };
        end(state, Collective::Scatterv, outcome)
    }
}

/// # Safety
/// Called by the entry of MPI_Alltoall.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn alltoall(
    state: &ModuleState,
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let block = count(rcount) * size(rdtype)?;
        let base = if is_in_place(sbuf) {
            rbuf
        } else if count(scount) * size(sdtype)? == block {
            sbuf.cast_mut()
        } else {
            return None;
        };
        begin(state, quick, CallWord::new(Collective::Alltoall), block);
        let from = |rank: usize| (at(base, rank * block).cast_const(), block);
        let into = |rank: usize| (at(rbuf, rank * block), block);
        end(state, Collective::Alltoall, quick.lane.alltoall(from, into, true))
    }
}

/// # Safety
/// Called by the entry of MPI_Alltoallv.
#[inline]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn alltoallv(
    state: &ModuleState,
    sbuf: *const c_void,
    scounts: *const c_int,
    sdispls: *const c_int,
    sdtype: MpiDatatype,
    rbuf: *mut c_void,
    rcounts: *const c_int,
    rdispls: *const c_int,
    rdtype: MpiDatatype,
) -> Option<c_int> {
    // SAFETY: as for `barrier`.
    unsafe {
        let quick = state.share.quick()?;
        let into =
            Runs { base: rbuf, counts: rcounts, displacements: rdispls, size: size(rdtype)? };
        let from = if is_in_place(sbuf) {
            into
        } else {
            let base = sbuf.cast_mut();
            Runs { base, counts: scounts, displacements: sdispls, size: size(sdtype)? }
        };
        let me = state.group.rank.index();
        if from.get(me).1 != into.get(me).1 {
            return None;
        }
        begin(state, quick, CallWord::new(Collective::Alltoallv), 0);
        let outcome =
            quick.lane.alltoall(|rank| from.get_const(rank), |rank| into.get(rank), false);
        end(state, Collective::Alltoallv, outcome)
    }
}

// ---- arguments ----

/// The runs of a v-variant.
#[derive(Clone, Copy)]
struct Runs {
    base: *mut c_void,
    counts: *const c_int,
    displacements: *const c_int,
    size: usize,
}

impl Runs {
    #[inline]
    fn get(&self, rank: usize) -> (*mut u8, usize) {
        // SAFETY: MPI passes a count and a displacement per rank.
        let (n, displacement) = unsafe { (*self.counts.add(rank), *self.displacements.add(rank)) };
        let offset = displacement as isize * self.size as isize;
        (self.base.wrapping_byte_offset(offset).cast(), count(n) * self.size)
    }

    #[inline]
    fn get_const(&self, rank: usize) -> (*const u8, usize) {
        let (at, len) = self.get(rank);
        (at.cast_const(), len)
    }
}

#[inline]
fn at(base: *mut c_void, offset: usize) -> *mut u8 {
    base.wrapping_byte_add(offset).cast()
}

/// This rank's block as it goes to a place of `block` bytes; null where it is there already.
///
/// # Safety
/// The handle is live.
#[inline]
unsafe fn own_block(
    sbuf: *const c_void,
    scount: c_int,
    sdtype: MpiDatatype,
    block: usize,
) -> Option<(*const u8, usize)> {
    if is_in_place(sbuf) {
        return Some((std::ptr::null(), 0));
    }
    // SAFETY: the caller's promise.
    (count(scount) * unsafe { size(sdtype) }? == block).then_some((sbuf.cast(), block))
}

/// Where this rank's block of `block` bytes goes; null where it stays.
///
/// # Safety
/// The handle is live.
#[inline]
unsafe fn own_room(
    rbuf: *mut c_void,
    rcount: c_int,
    rdtype: MpiDatatype,
    block: usize,
) -> Option<(*mut u8, usize)> {
    if is_in_place(rbuf) {
        return Some((std::ptr::null_mut(), 0));
    }
    // SAFETY: the caller's promise.
    (count(rcount) * unsafe { size(rdtype) }? == block).then_some((rbuf.cast(), block))
}
