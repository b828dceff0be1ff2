//! Host memory as a [`Device`]: copies by the CPU, reductions by vectorised loops.

mod reduce;

pub(crate) use reduce::reduce as reduce_predefined;

use hetccl_core::{Device, Handle, Posted, Reduction, Region, TransportError};

/// Computes the reductions that only the front end knows: user functions and its own datatypes.
pub trait ExternalReducer: Send {
    /// `inout[i] = left[i] op inout[i]` for `count` packed elements.
    ///
    /// # Safety
    /// `operation` is a number that the front end gave as [`Reduction::External`] and whose meaning is still
    /// alive; `left` and `inout` point to `count` elements each that don't overlap.
    unsafe fn reduce(&self, operation: usize, left: *const u8, inout: *mut u8, count: usize);
}

/// The CPU. Everything finishes at once.
pub(crate) struct HostDevice {
    pub(crate) external: Box<dyn ExternalReducer>,
}

impl Device for HostDevice {
    fn copy(&mut self, from: Region, into: Region) -> Result<Posted, TransportError> {
        debug_assert_eq!(from.len_bytes, into.len_bytes);
        // SAFETY: the engine copies between the buffers of a request, which the front end vouches for in
        // `Process::start`, and the scratch block it was given; the builder refuses overlapping copies.
        unsafe { std::ptr::copy_nonoverlapping(read(from), write(into), from.len_bytes) };
        Ok(Posted::Done)
    }

    fn reduce(
        &mut self,
        reduction: &Reduction,
        left: Region,
        right: Region,
        into: Region,
        count: usize,
    ) -> Result<Posted, TransportError> {
        match *reduction {
            Reduction::Predefined(op, datatype) => {
                // SAFETY: as for `copy`; the engine hands spans of `count` elements of `datatype`.
                unsafe { reduce::reduce(op, datatype, read(left), read(right), write(into), count) }
            }
            Reduction::External(operation) => {
                let (left, right, len_bytes) = (read(left), read(right), into.len_bytes);
                let external = &*self.external;
                // SAFETY: as for `copy`; `into` is an operand or overlaps neither.
                unsafe {
                    reduce_external(external, operation, left, right, write(into), count, len_bytes)
                }
            }
        }
        Ok(Posted::Done)
    }

    fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
        Ok(true)
    }
}

/// `into[i] = left[i] op right[i]` for a front end's own operation. Its functions have two operands: the result replaces the
/// right one.
///
/// # Safety
/// As [`ExternalReducer::reduce`]; all three are `len_bytes` long, and `into` is `left` or `right` or overlaps neither.
pub(crate) unsafe fn reduce_external(
    external: &dyn ExternalReducer,
    operation: usize,
    left: *const u8,
    right: *const u8,
    into: *mut u8,
    count: usize,
    len_bytes: usize,
) {
    // SAFETY: the caller's promise; `result` is as long as the operands.
    unsafe {
        if into.cast_const() == left && left != right {
            let mut result = vec![0u8; len_bytes];
            std::ptr::copy_nonoverlapping(right, result.as_mut_ptr(), len_bytes);
            external.reduce(operation, left, result.as_mut_ptr(), count);
            std::ptr::copy_nonoverlapping(result.as_ptr(), into, len_bytes);
            return;
        }
        if into.cast_const() != right {
            std::ptr::copy_nonoverlapping(right, into, len_bytes);
        }
        external.reduce(operation, left, into, count);
    }
}

fn read(region: Region) -> *const u8 {
    std::ptr::with_exposed_provenance(region.address.0)
}

fn write(region: Region) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(region.address.0)
}
