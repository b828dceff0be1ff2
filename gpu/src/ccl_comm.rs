//! A communicator of a vendor's library, for collectives inside a vendor group.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use hetccl_core::{Datatype, GroupCall, GroupCollective, Reduction, ReductionOp};

use crate::ccl::{CclError, VendorCcl};
use crate::driver::Stream;

/// The library's code for success, and for a call that goes on by itself.
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// The library's code for bytes, as data movement has them.
const BYTES: c_int = 1;
/// How often [`CclComm::check`] is called before it asks the library.
const CHECKS: u32 = 1024;

type Address = *mut c_void;
type InitRank = unsafe extern "C" fn(*mut Address, c_int, [u8; 128], c_int) -> c_int;
type OfComm = unsafe extern "C" fn(Address) -> c_int;
type AsyncError = unsafe extern "C" fn(Address, *mut c_int) -> c_int;
type Scatter =
    unsafe extern "C" fn(*const c_void, Address, usize, c_int, c_int, Address, Address) -> c_int;
type Gather = unsafe extern "C" fn(*const c_void, Address, usize, c_int, Address, Address) -> c_int;
type Rooted = unsafe extern "C" fn(
    *const c_void,
    Address,
    usize,
    c_int,
    c_int,
    c_int,
    Address,
    Address,
) -> c_int;
type Spread =
    unsafe extern "C" fn(*const c_void, Address, usize, c_int, c_int, Address, Address) -> c_int;

/// One rank of a communicator of a vendor's library. Used by one thread at a time, whose device is the rank's.
///
/// Dropped while a collective is under way or when it has been [given up](CclComm::give_up), it is aborted, which ends kernels that
/// wait for other ranks; otherwise it is destroyed.
#[derive(Debug)]
pub struct CclComm {
    library: &'static VendorCcl,
    comm: NonNull<c_void>,
    under_way: Cell<u32>,
    given_up: Cell<bool>,
    checks: Cell<u32>,
}

// SAFETY: the library's communicators may be used by any one thread at a time that has their device.
unsafe impl Send for CclComm {}

impl CclComm {
    /// Meets the `size` ranks that have the vendor's unique id. Returns when all have come. The calling thread's current context is
    /// that of the streams on which it will work.
    ///
    /// # Errors
    /// The library's refusal, such as for two ranks on one GPU.
    pub fn join(
        library: &'static VendorCcl,
        id: [u8; 128],
        (rank, size): (usize, usize),
    ) -> Result<CclComm, CclError> {
        let init = library.function(c"ncclCommInitRank")?;
        // SAFETY: the function has this type in every version: its third argument is a structure of 128 bytes.
        let init: InitRank = unsafe { std::mem::transmute(init) };
        let mut comm = std::ptr::null_mut();
        // SAFETY: room for the result.
        let mut code = unsafe { init(&mut comm, size as c_int, id, rank as c_int) };
        while code == IN_PROGRESS {
            std::thread::sleep(std::time::Duration::from_micros(200));
            code = state(library, comm)?;
        }
        let Some(comm) = NonNull::new(comm).filter(|_| code == SUCCESS) else {
            return Err(library.refused("ncclCommInitRank", code));
        };
        Ok(CclComm {
            library,
            comm,
            under_way: Cell::new(0),
            given_up: Cell::new(false),
            checks: Cell::new(0),
        })
    }

    /// The library.
    pub fn library(&self) -> &'static VendorCcl {
        self.library
    }

    /// Queues a collective on a stream: `count` elements of each rank's part (reduce-scatter, allgather) or of the vector; for
    /// collectives that only move, of one byte each. Each call is followed by one of [`ended`](CclComm::ended).
    ///
    /// # Errors
    /// The library's; an operation that it does not have ([`can_reduce`](CclComm::can_reduce)).
    pub fn queue(
        &self,
        stream: Stream,
        call: GroupCall,
        from: usize,
        into: usize,
        count: usize,
    ) -> Result<(), CclError> {
        let from = std::ptr::with_exposed_provenance::<c_void>(from);
        let into = std::ptr::with_exposed_provenance_mut::<c_void>(into);
        let stream = std::ptr::with_exposed_provenance_mut::<c_void>(stream.0);
        let (comm, root) = (self.comm.as_ptr(), call.root as c_int);
        let reduction = call.reduction.and_then(codes);
        let find = |name| self.library.function(name);
        let refused = || self.library.missing("such operation");
        // The addresses are memory of the communicator's device that the caller keeps until the collective has ended.
        let (name, code) = match call.collective {
            GroupCollective::ReduceScatter => {
                let (op, datatype) = reduction.ok_or_else(refused)?;
                // SAFETY: the function has this type in every version.
                let call: Scatter = unsafe { std::mem::transmute(find(c"ncclReduceScatter")?) };
                // SAFETY: the library's communicator and stream, and memory as above.
                let code = unsafe { call(from, into, count, datatype, op, comm, stream) };
                ("ncclReduceScatter", code)
            }
            GroupCollective::Reduce => {
                let (op, datatype) = reduction.ok_or_else(refused)?;
                // SAFETY: the function has this type in every version.
                let call: Rooted = unsafe { std::mem::transmute(find(c"ncclReduce")?) };
                // SAFETY: the library's communicator and stream, and memory as above.
                let code = unsafe { call(from, into, count, datatype, op, root, comm, stream) };
                ("ncclReduce", code)
            }
            GroupCollective::Allgather => {
                // SAFETY: the function has this type in every version.
                let call: Gather = unsafe { std::mem::transmute(find(c"ncclAllGather")?) };
                // SAFETY: the library's communicator and stream, and memory as above.
                ("ncclAllGather", unsafe { call(from, into, count, BYTES, comm, stream) })
            }
            GroupCollective::Bcast => {
                // SAFETY: the function has this type in every version.
                let call: Spread = unsafe { std::mem::transmute(find(c"ncclBroadcast")?) };
                // SAFETY: the library's communicator and stream, and memory as above.
                ("ncclBroadcast", unsafe { call(from, into, count, BYTES, root, comm, stream) })
            }
        };
        if code != SUCCESS && code != IN_PROGRESS {
            return Err(self.library.refused(name, code));
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(())
    }

    /// A collective that was queued has ended.
    pub fn ended(&self) {
        self.under_way.set(self.under_way.get().saturating_sub(1));
    }

    /// Other ranks may not come any more, or do not wait for this one: its end is to wait for nobody.
    pub fn give_up(&self) {
        self.given_up.set(true);
    }

    /// Whether the library says that something has failed; asks it now and then.
    ///
    /// # Errors
    /// What it says.
    pub fn check(&self) -> Result<(), CclError> {
        self.checks.set(self.checks.get().wrapping_add(1));
        if !self.checks.get().is_multiple_of(CHECKS) {
            return Ok(());
        }
        match state(self.library, self.comm.as_ptr())? {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.library.refused("a collective", code)),
        }
    }

    /// Whether every version of the libraries that hetccl knows can combine so.
    pub fn can_reduce(reduction: Reduction) -> bool {
        codes(reduction).is_some()
    }
}

impl Drop for CclComm {
    fn drop(&mut self) {
        let aborts = self.given_up.get() || self.under_way.get() > 0;
        let name = if aborts { c"ncclCommAbort" } else { c"ncclCommDestroy" };
        if let Ok(end) = self.library.function(name) {
            // SAFETY: the function has this type in every version.
            let end: OfComm = unsafe { std::mem::transmute(end) };
            // SAFETY: a communicator that nobody uses any more.
            unsafe { end(self.comm.as_ptr()) };
        }
    }
}

/// The state of a communicator.
fn state(library: &VendorCcl, comm: Address) -> Result<c_int, CclError> {
    let asked = library.function(c"ncclCommGetAsyncError")?;
    // SAFETY: the function has this type in every version.
    let asked: AsyncError = unsafe { std::mem::transmute(asked) };
    let mut state = SUCCESS;
    // SAFETY: the library's communicator and room for the answer.
    match unsafe { asked(comm, &mut state) } {
        SUCCESS => Ok(state),
        code => Err(library.refused("ncclCommGetAsyncError", code)),
    }
}

/// The libraries' numbers of an operation and a datatype that all versions have.
fn codes(reduction: Reduction) -> Option<(c_int, c_int)> {
    let Reduction::Predefined(op, datatype) = reduction else { return None };
    let op = match op {
        ReductionOp::Sum => 0,
        ReductionOp::Prod => 1,
        ReductionOp::Max => 2,
        ReductionOp::Min => 3,
        _ => return None,
    };
    let datatype = match datatype {
        Datatype::Int8 => 0,
        Datatype::Uint8 => 1,
        Datatype::Int32 => 2,
        Datatype::Uint32 => 3,
        Datatype::Int64 => 4,
        Datatype::Uint64 => 5,
        Datatype::Float16 => 6,
        Datatype::Float32 => 7,
        Datatype::Float64 => 8,
        Datatype::Bfloat16 => 9,
        Datatype::Int16 | Datatype::Uint16 => return None,
    };
    Some((op, datatype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_libraries_numbers_or_none() {
        let of = |op, datatype| codes(Reduction::Predefined(op, datatype));
        assert_eq!(of(ReductionOp::Min, Datatype::Bfloat16), Some((3, 9)));
        assert_eq!(of(ReductionOp::Sum, Datatype::Float32), Some((0, 7)));
        assert_eq!(of(ReductionOp::BitAnd, Datatype::Int32), None);
        assert_eq!(of(ReductionOp::Sum, Datatype::Uint16), None);
        assert!(!CclComm::can_reduce(Reduction::External(0)));
    }
}
