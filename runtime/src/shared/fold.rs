//! Operations that lanes combine contributions with.

use hetccl_core::{Datatype, ReductionOp};

use crate::host::{ExternalReducer, reduce_external, reduce_predefined};

/// An operation on elements of one size.
pub trait Fold {
    /// Bytes of an element.
    fn element_bytes(&self) -> usize;

    /// `into[i] = left[i] op right[i]`.
    ///
    /// # Safety
    /// All three point to `count` elements; `into` is `left` or `right` or overlaps neither.
    unsafe fn fold(&self, left: *const u8, right: *const u8, into: *mut u8, count: usize);
}

impl Fold for (ReductionOp, Datatype) {
    #[inline]
    fn element_bytes(&self) -> usize {
        self.1.size_bytes()
    }

    #[inline]
    unsafe fn fold(&self, left: *const u8, right: *const u8, into: *mut u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { reduce_predefined(self.0, self.1, left, right, into, count) }
    }
}

/// The front end's operation number `operation` on elements of `bytes`.
impl Fold for (&dyn ExternalReducer, usize, usize) {
    fn element_bytes(&self) -> usize {
        self.2
    }

    unsafe fn fold(&self, left: *const u8, right: *const u8, into: *mut u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { reduce_external(self.0, self.1, left, right, into, count, count * self.2) }
    }
}
