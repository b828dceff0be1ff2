//! Datatypes: sizes, layout, packing.

use std::ffi::c_void;
use std::ptr::NonNull;

use hetccl_core as core;

use crate::communicator::check;
use crate::sys;

/// A datatype that Open MPI handed over; valid during the call that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatatypeRef(NonNull<sys::ompi_datatype_t>);

// SAFETY: a committed datatype does not change.
unsafe impl Send for DatatypeRef {}

impl DatatypeRef {
    /// Wraps a datatype.
    ///
    /// # Safety
    /// `raw` is a live, committed datatype and stays so while this value and its copies are used; [`Datatype`] prolongs
    /// its life.
    pub unsafe fn from_raw(raw: *mut sys::ompi_datatype_t) -> DatatypeRef {
        DatatypeRef(NonNull::new(raw).expect("Open MPI passes a datatype"))
    }

    /// The pointer.
    pub fn as_ptr(self) -> *mut sys::ompi_datatype_t {
        self.0.as_ptr()
    }

    /// Bytes of data in one element, gaps not counted.
    pub fn size_bytes(self) -> usize {
        // SAFETY: the datatype is live (`from_raw`).
        unsafe { sys::hetccl_datatype_size(self.as_ptr()) }
    }

    /// Bytes of an element, for one of MPI's own datatypes whose elements have no gaps in and between them.
    #[inline]
    pub fn plain_bytes(self) -> Option<usize> {
        // SAFETY: the datatype is live (`from_raw`).
        usize::try_from(unsafe { sys::hetccl_datatype_plain(self.as_ptr()) }).ok()
    }

    /// Bytes from one element to the next; may be zero or negative.
    pub fn extent_bytes(self) -> isize {
        let (mut lb, mut extent) = (0, 0);
        // SAFETY: the datatype is live and the results are ours.
        unsafe { sys::hetccl_datatype_extent(self.as_ptr(), &mut lb, &mut extent) };
        extent
    }

    /// Bytes from the address of an element to its first byte of data.
    pub fn true_lower_bound_bytes(self) -> isize {
        self.true_extent().0
    }

    /// First byte of data and length up to the last one.
    pub fn true_extent(self) -> (isize, isize) {
        let (mut lb, mut extent) = (0, 0);
        // SAFETY: the datatype is live and the results are ours.
        unsafe { sys::hetccl_datatype_true_extent(self.as_ptr(), &mut lb, &mut extent) };
        (lb, extent)
    }

    /// Whether `count` elements lie in memory without a gap, in order.
    pub fn is_contiguous(self, count: usize) -> bool {
        // SAFETY: the datatype is live (`from_raw`).
        unsafe { sys::hetccl_datatype_contiguous(self.as_ptr(), count) }
    }

    /// Whether MPI predefines it.
    pub fn is_predefined(self) -> bool {
        // SAFETY: the datatype is live (`from_raw`).
        unsafe { sys::hetccl_datatype_predefined(self.as_ptr()) }
    }

    /// hetccl's own name for it, where it has one.
    pub fn kind(self) -> Option<core::Datatype> {
        use core::Datatype::*;
        // The order of `hetccl_datatype_kind`.
        const KINDS: [core::Datatype; 12] = [
            Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float16, Bfloat16, Float32,
            Float64,
        ];
        // SAFETY: the datatype is live (`from_raw`).
        let kind = unsafe { sys::hetccl_datatype_kind(self.as_ptr()) };
        usize::try_from(kind).ok().map(|kind| KINDS[kind])
    }

    /// Gathers `count` elements at `from` into `bytes` packed bytes.
    ///
    /// # Errors
    /// Open MPI's status.
    ///
    /// # Safety
    /// `from` holds `count` elements, `into` has room for `bytes`, the packed size of them all.
    pub unsafe fn pack(
        self,
        count: usize,
        from: *const c_void,
        into: *mut c_void,
        bytes: usize,
    ) -> Result<(), i32> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::hetccl_datatype_pack(self.as_ptr(), count, from, into, bytes) })
    }

    /// Spreads `bytes` packed bytes over `count` elements at `into`.
    ///
    /// # Errors
    /// Open MPI's status.
    ///
    /// # Safety
    /// `into` has room for `count` elements, `from` holds `bytes`, the packed size of them all.
    pub unsafe fn unpack(
        self,
        count: usize,
        from: *const c_void,
        into: *mut c_void,
        bytes: usize,
    ) -> Result<(), i32> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::hetccl_datatype_unpack(self.as_ptr(), count, from, into, bytes) })
    }

    /// A reference that keeps the datatype alive.
    pub fn retain(self) -> Datatype {
        // SAFETY: the datatype is live (`from_raw`).
        unsafe { sys::hetccl_datatype_retain(self.as_ptr()) };
        Datatype(self)
    }
}

/// A datatype kept alive, for operations that outlast the call.
#[derive(Debug)]
pub struct Datatype(DatatypeRef);

impl Datatype {
    /// The datatype.
    pub fn get(&self) -> DatatypeRef {
        self.0
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        // SAFETY: retained in `DatatypeRef::retain`, released only here.
        unsafe { sys::hetccl_datatype_release(self.0.as_ptr()) }
    }
}
