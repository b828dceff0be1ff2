//! Reduction operations.

use std::ffi::c_void;
use std::ptr::NonNull;

use hetccl_core::ReductionOp;

use crate::datatype::DatatypeRef;
use crate::sys;

/// An operation that Open MPI handed over; valid during the call that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRef(NonNull<sys::ompi_op_t>);

// SAFETY: an operation does not change.
unsafe impl Send for OpRef {}

impl OpRef {
    /// Wraps an operation.
    ///
    /// # Safety
    /// `raw` is a live operation and stays so while this value and its copies are used; [`Op`] prolongs its life.
    pub unsafe fn from_raw(raw: *mut sys::ompi_op_t) -> OpRef {
        OpRef(NonNull::new(raw).expect("Open MPI passes an operation"))
    }

    /// Whether operands may be swapped.
    pub fn is_commutative(self) -> bool {
        // SAFETY: the operation is live (`from_raw`).
        unsafe { sys::hetccl_op_commutative(self.0.as_ptr()) }
    }

    /// hetccl's own name for it, where it has one.
    pub fn kind(self) -> Option<ReductionOp> {
        use ReductionOp::*;
        // The order of `hetccl_op_kind`.
        const KINDS: [ReductionOp; 10] =
            [Sum, Prod, Min, Max, LogicalAnd, LogicalOr, LogicalXor, BitAnd, BitOr, BitXor];
        // SAFETY: the operation is live (`from_raw`).
        let kind = unsafe { sys::hetccl_op_kind(self.0.as_ptr()) };
        usize::try_from(kind).ok().map(|kind| KINDS[kind])
    }

    /// `inout = left op inout` on typed elements, by Open MPI or the user's function.
    ///
    /// # Safety
    /// Both point to `count` elements of `datatype` for which the operation is defined.
    pub unsafe fn reduce(
        self,
        left: *const c_void,
        inout: *mut c_void,
        count: usize,
        datatype: DatatypeRef,
    ) {
        // SAFETY: the caller's promise.
        unsafe { sys::hetccl_op_reduce(self.0.as_ptr(), left, inout, count, datatype.as_ptr()) }
    }

    /// A reference that keeps the operation alive.
    pub fn retain(self) -> Op {
        // SAFETY: the operation is live (`from_raw`).
        unsafe { sys::hetccl_op_retain(self.0.as_ptr()) };
        Op(self)
    }
}

/// An operation kept alive.
#[derive(Debug)]
pub struct Op(OpRef);

impl Op {
    /// The operation.
    pub fn get(&self) -> OpRef {
        self.0
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        // SAFETY: retained in `OpRef::retain`, released only here.
        unsafe { sys::hetccl_op_release(self.0.0.as_ptr()) }
    }
}
