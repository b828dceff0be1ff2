//! Host memory as a [`Device`]: copies by the CPU, reductions by vectorised loops.

mod reduce;

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
                self.reduce_external(operation, left, right, into, count)
            }
        }
        Ok(Posted::Done)
    }

    fn test(&mut self, _: Handle) -> Result<bool, TransportError> {
        Ok(true)
    }
}

impl HostDevice {
    /// The front end's functions have two operands: the result replaces the right one.
    fn reduce_external(
        &mut self,
        operation: usize,
        left: Region,
        right: Region,
        into: Region,
        count: usize,
    ) {
        let len_bytes = into.len_bytes;
        if into.address == left.address && into.address != right.address {
            let mut result = vec![0u8; len_bytes];
            // SAFETY: as for `copy`; `result` is as long as the operands.
            unsafe {
                std::ptr::copy_nonoverlapping(read(right), result.as_mut_ptr(), len_bytes);
                self.external.reduce(operation, read(left), result.as_mut_ptr(), count);
                std::ptr::copy_nonoverlapping(result.as_ptr(), write(into), len_bytes);
            }
            return;
        }
        // SAFETY: as for `copy`; `into` is `right` or overlaps neither operand.
        unsafe {
            if into.address != right.address {
                std::ptr::copy_nonoverlapping(read(right), write(into), len_bytes);
            }
            self.external.reduce(operation, read(left), write(into), count);
        }
    }
}

fn read(region: Region) -> *const u8 {
    std::ptr::with_exposed_provenance(region.address.0)
}

fn write(region: Region) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(region.address.0)
}
