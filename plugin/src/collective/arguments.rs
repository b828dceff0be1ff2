//! Pieces of translation that several collectives share.

use std::ffi::c_void;
use std::os::raw::c_int;
use std::sync::Arc;

use once_cell::sync::Lazy;

use hetccl_core::{Block, Group, Neighbours, Rank, Root};
use hetccl_mca::{DatatypeRef, is_in_place, sys};

use crate::module::ModuleState;
use crate::view::Elements;

/// Open MPI's datatype handle in a signature.
pub(crate) type MpiDatatype = *mut sys::ompi_datatype_t;

/// Open MPI's operation handle in a signature.
pub(crate) type MpiOp = *mut sys::ompi_op_t;

/// `MPI_PROC_NULL` and `MPI_ROOT`, as Open MPI numbers them.
const PROC_NULL: c_int = -2;
const MPI_ROOT: c_int = -4;

/// A count that MPI has found not to be negative.
pub(super) fn count(value: c_int) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Whether a reduction finds its contribution where its result goes. MPI programs say `MPI_IN_PLACE`; Open MPI itself
/// also passes the same address twice.
pub(crate) fn shares_buffer(sbuf: *const c_void, rbuf: *mut c_void) -> bool {
    is_in_place(sbuf) || (sbuf.addr() == rbuf.addr() && !sbuf.is_null())
}

/// The root's rank as the engine wants it.
pub(super) fn root(group: Group, root: c_int) -> Root {
    match root {
        MPI_ROOT if group.remote_size.is_some() => Root::Here,
        PROC_NULL if group.remote_size.is_some() => Root::Elsewhere,
        rank => Root::Rank(Rank(rank as u32)),
    }
}

/// Whether this rank is the root of an intra- or inter-communicator's collective.
pub(super) fn is_root(group: Group, root: Root) -> bool {
    match root {
        Root::Here => true,
        Root::Rank(rank) => group.remote_size.is_none() && rank == group.rank,
        Root::Elsewhere | Root::None => false,
    }
}

/// Whether this rank sends to or gets from a root in the other group, or in its own one.
pub(super) fn takes_part(root: Root) -> bool {
    root != Root::Elsewhere
}

/// Ranks whose blocks a rank holds: its own group's, or the remote group's.
pub(super) fn peers(group: Group) -> usize {
    match group.remote_size {
        None => group.len(),
        Some(remote) => remote as usize,
    }
}

/// Equal sizes of what is sent and received, as MPI demands on one communicator.
///
/// # Errors
/// MPI_ERR_TRUNCATE: more would be sent than there is room for, or less than is waited for.
pub(super) fn same_bytes(send: usize, recv: usize) -> Result<(), c_int> {
    if send == recv { Ok(()) } else { Err(sys::MPI_ERR_TRUNCATE as c_int) }
}

/// The runs of a v-variant: `counts[i]` elements at `displacements[i]` extents from `buffer`.
///
/// # Safety
/// Both arrays have `n` entries.
pub(super) unsafe fn runs(
    buffer: *mut c_void,
    counts: *const c_int,
    displacements: *const c_int,
    datatype: DatatypeRef,
    n: usize,
) -> Vec<Elements> {
    let extent = datatype.extent_bytes();
    (0..n)
        .map(|i| {
            // SAFETY: the caller's promise.
            let (count_i, displacement) = unsafe { (*counts.add(i), *displacements.add(i)) };
            let address = buffer.wrapping_byte_offset(extent * displacement as isize);
            Elements::at(address, count(count_i), datatype)
        })
        .collect()
}

/// The runs of a w-variant: `counts[i]` elements of `datatypes[i]` at `displacements[i]` bytes from `buffer`.
///
/// # Safety
/// All arrays have `n` entries, the datatypes are live.
pub(super) unsafe fn typed_runs(
    buffer: *mut c_void,
    counts: *const c_int,
    displacements: impl Fn(usize) -> isize,
    datatypes: *const MpiDatatype,
    n: usize,
) -> Vec<Elements> {
    (0..n)
        .map(|i| {
            // SAFETY: the caller's promise.
            let (count_i, datatype) =
                unsafe { (*counts.add(i), DatatypeRef::from_raw(*datatypes.add(i))) };
            Elements::at(buffer.wrapping_byte_offset(displacements(i)), count(count_i), datatype)
        })
        .collect()
}

/// `n` runs of equal length, one after the other.
pub(super) fn equal_runs(
    buffer: *mut c_void,
    count: usize,
    datatype: DatatypeRef,
    n: usize,
) -> Vec<Elements> {
    let step = datatype.extent_bytes() * count as isize;
    (0..n)
        .map(|i| Elements::at(buffer.wrapping_byte_offset(step * i as isize), count, datatype))
        .collect()
}

/// A block that is the whole of a buffer.
pub(super) fn one_block(bytes: usize) -> Arc<[Block]> {
    Arc::new([Block { start: 0, len: bytes }])
}

/// No block.
pub(super) fn no_blocks() -> Arc<[Block]> {
    static NONE: Lazy<Arc<[Block]>> = Lazy::new(|| Arc::new([]));
    Arc::clone(&NONE)
}

/// This rank's neighbours in the communicator's topology.
///
/// # Errors
/// An MPI error class, where there is no topology.
pub(super) fn neighbours(state: &ModuleState) -> Result<Neighbours, c_int> {
    let topology = state.comm.topology().map_err(|_| sys::MPI_ERR_TOPOLOGY as c_int)?;
    Ok(Neighbours {
        sources: topology.sources.into(),
        destinations: topology.destinations.into(),
        cartesian: topology.cartesian,
    })
}

/// Runs of neighbours that do not exist hold nothing.
pub(super) fn without_null(runs: Vec<Elements>, neighbours: &[Option<Rank>]) -> Vec<Elements> {
    runs.into_iter()
        .zip(neighbours)
        .map(|(run, neighbour)| match neighbour {
            Some(_) => run,
            None => Elements { count: 0, ..run },
        })
        .collect()
}
