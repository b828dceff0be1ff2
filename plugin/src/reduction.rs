//! MPI operations and datatypes as the engine's reductions.
//!
//! What hetccl computes itself goes to its own loops. Everything else (complex, Fortran and pair types, user functions,
//! derived types) is computed by Open MPI, which calls the user's function where there is one.

use std::ffi::c_void;

use hetccl_core::{Datatype, Reduction, ReductionOp};
use hetccl_mca::{DatatypeRef, OpRef};
use hetccl_runtime::ExternalReducer;

use crate::view::Elements;

/// Elements that are unpacked at a time for types with gaps.
const UNPACKED_BYTES: usize = 64 << 10;

/// What an external reduction's number points to.
#[derive(Debug)]
pub(crate) struct External {
    op: OpRef,
    datatype: DatatypeRef,
    contiguous: bool,
    _retained: Option<(hetccl_mca::Op, hetccl_mca::Datatype)>,
}

impl External {
    /// Keeps operation and datatype alive for an operation that outlasts the call.
    pub(crate) fn retain(&mut self) {
        if self._retained.is_none() {
            self._retained = Some((self.op.retain(), self.datatype.retain()));
        }
    }
}

/// The engine's reduction for an MPI operation and datatype, and what it points to, which must outlive the operation.
pub(crate) fn translate(op: OpRef, datatype: DatatypeRef) -> (Reduction, Option<Box<External>>) {
    if let (Some(op), Some(datatype)) = (op.kind(), datatype.kind())
        && defined(op, datatype)
    {
        return (Reduction::Predefined(op, datatype), None);
    }
    let contiguous = datatype.is_contiguous(2);
    let external = Box::new(External { op, datatype, contiguous, _retained: None });
    (Reduction::External((&raw const *external).expose_provenance()), Some(external))
}

/// Logic and bits are for integers.
pub(crate) fn defined(op: ReductionOp, datatype: Datatype) -> bool {
    use ReductionOp::{Max, Min, Prod, Sum};
    datatype.is_integer() || matches!(op, Sum | Prod | Min | Max)
}

/// Hands reductions to Open MPI.
pub(crate) struct OpenMpiReducer;

impl ExternalReducer for OpenMpiReducer {
    unsafe fn reduce(&self, operation: usize, left: *const u8, inout: *mut u8, count: usize) {
        // SAFETY: the number was made in `translate`, and its owner lives as long as the operation.
        let external: &External = unsafe { &*std::ptr::with_exposed_provenance(operation) };
        if external.contiguous {
            let lb = external.datatype.true_lower_bound_bytes();
            let (left, inout) = (left.wrapping_offset(-lb), inout.wrapping_offset(-lb));
            // SAFETY: packed and unpacked elements are the same for this type, up to the offset of the first byte.
            unsafe { external.op.reduce(left.cast(), inout.cast(), count, external.datatype) }
        } else {
            // SAFETY: the engine passes `count` packed elements in each operand.
            unsafe { reduce_unpacked(external, left, inout, count) }
        }
    }
}

/// Typed copies of some elements of both operands.
struct Unpacked {
    memory: Vec<u8>,
    /// From the start of the memory to the address that MPI would call the buffer.
    origin: isize,
}

impl Unpacked {
    fn new(datatype: DatatypeRef, count: usize) -> Unpacked {
        let (lowest, len_bytes) = Elements::at(std::ptr::null_mut(), count, datatype).span();
        Unpacked { memory: vec![0; len_bytes], origin: -lowest }
    }

    fn address(&mut self) -> *mut c_void {
        self.memory.as_mut_ptr().wrapping_offset(self.origin).cast()
    }
}

/// # Safety
/// Both operands hold `count` packed elements of the external's datatype.
unsafe fn reduce_unpacked(external: &External, left: *const u8, inout: *mut u8, count: usize) {
    let datatype = external.datatype;
    let size = datatype.size_bytes();
    if size == 0 || count == 0 {
        return;
    }
    let at_a_time = (UNPACKED_BYTES / size).clamp(1, count);
    let (mut a, mut b) = (Unpacked::new(datatype, at_a_time), Unpacked::new(datatype, at_a_time));
    let mut done = 0;
    while done < count {
        let now = at_a_time.min(count - done);
        let bytes = now * size;
        let (left, inout) = (left.wrapping_add(done * size), inout.wrapping_add(done * size));
        // SAFETY: `now` packed elements are left in both operands, and both typed copies have room for them.
        let converted = unsafe {
            datatype
                .unpack(now, left.cast(), a.address(), bytes)
                .and_then(|()| datatype.unpack(now, inout.cast(), b.address(), bytes))
                .map(|()| external.op.reduce(a.address(), b.address(), now, datatype))
                .and_then(|()| datatype.pack(now, b.address(), inout.cast(), bytes))
        };
        assert!(converted.is_ok(), "Open MPI packs what it has unpacked");
        done += now;
    }
}
