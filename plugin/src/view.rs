//! The user's buffers as schedules see them: contiguous bytes.
//!
//! Data without gaps is used where it lies. Anything else gets a packed copy, filled before the collective starts and
//! spread out after it has finished.

use std::ffi::c_void;
use std::sync::Arc;

use hetccl_core::{Address, Block, MemoryType, Region};
use hetccl_mca::{Datatype, DatatypeRef};

use crate::status;

/// `count` elements of a datatype at an address of the user's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    pub(crate) address: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: DatatypeRef,
}

impl Elements {
    /// Elements in memory that MPI lets hetccl write.
    pub(crate) fn at(address: *mut c_void, count: usize, datatype: DatatypeRef) -> Elements {
        Elements { address, count, datatype }
    }

    /// Elements in memory that is only read.
    pub(crate) fn of(address: *const c_void, count: usize, datatype: DatatypeRef) -> Elements {
        Elements { address: address.cast_mut(), count, datatype }
    }

    /// Bytes of data.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.datatype.size_bytes()
    }

    fn first_byte(&self) -> *mut c_void {
        self.address.wrapping_byte_offset(self.datatype.true_lower_bound_bytes())
    }
}

/// A part of a packed buffer, and where it belongs.
#[derive(Debug)]
struct Piece {
    elements: Elements,
    offset: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Packed {
    memory: Vec<u8>,
    pieces: Vec<Piece>,
    /// Keeps derived datatypes alive for operations that outlast the call.
    _retained: Vec<Datatype>,
}

/// A buffer ready for a schedule.
#[derive(Debug, Default)]
pub(crate) struct View {
    region: Region,
    packed: Option<Box<Packed>>,
}

impl View {
    /// No buffer: the collective has none here.
    pub(crate) fn none() -> View {
        View::default()
    }

    /// One run of elements.
    pub(crate) fn of(elements: Elements) -> View {
        let bytes = elements.bytes();
        if bytes == 0 {
            return View::none();
        }
        if elements.datatype.is_contiguous(elements.count) {
            return View { region: host(elements.first_byte(), bytes), packed: None };
        }
        View::packed(vec![Piece { elements, offset: 0, bytes }], bytes)
    }

    /// Separate runs of elements, and the block of bytes where each is found in the view.
    pub(crate) fn blocks(runs: &[Elements]) -> (View, Arc<[Block]>) {
        let contiguous =
            runs.iter().all(|run| run.bytes() == 0 || run.datatype.is_contiguous(run.count));
        if contiguous { View::blocks_in_place(runs) } else { View::blocks_packed(runs) }
    }

    /// The view spans the user's memory from the first to the last byte of any run; what lies between is left alone.
    fn blocks_in_place(runs: &[Elements]) -> (View, Arc<[Block]>) {
        let filled = || runs.iter().filter(|run| run.bytes() > 0);
        let Some(base) = filled().map(|run| run.first_byte()).min_by_key(|first| first.addr())
        else {
            return (View::none(), runs.iter().map(|_| Block::default()).collect());
        };
        let end = filled().map(|run| run.first_byte().addr() + run.bytes()).max().unwrap_or(0);
        let blocks = runs.iter().map(|run| match run.bytes() {
            0 => Block::default(),
            len => Block { start: run.first_byte().addr() - base.addr(), len },
        });
        (View { region: host(base, end - base.addr()), packed: None }, blocks.collect())
    }

    fn blocks_packed(runs: &[Elements]) -> (View, Arc<[Block]>) {
        let mut pieces = Vec::with_capacity(runs.len());
        let mut blocks = Vec::with_capacity(runs.len());
        let mut offset = 0;
        for &elements in runs {
            let bytes = elements.bytes();
            blocks.push(Block { start: offset, len: bytes });
            pieces.push(Piece { elements, offset, bytes });
            offset += bytes;
        }
        (View::packed(pieces, offset), blocks.into())
    }

    fn packed(pieces: Vec<Piece>, bytes: usize) -> View {
        let memory = vec![0u8; bytes];
        let region = host(memory.as_ptr().cast_mut().cast(), bytes);
        View { region, packed: Some(Box::new(Packed { memory, pieces, _retained: Vec::new() })) }
    }

    /// The bytes that the schedule works on.
    #[inline]
    pub(crate) fn region(&self) -> Region {
        self.region
    }

    /// Keeps the datatypes alive for an operation that outlasts the call.
    pub(crate) fn retain(&mut self) {
        if let Some(packed) = &mut self.packed
            && packed._retained.is_empty()
        {
            packed._retained = packed.pieces.iter().map(|p| p.elements.datatype.retain()).collect();
        }
    }

    /// Fills the packed copy from the user's memory.
    ///
    /// # Errors
    /// An MPI error class.
    #[inline]
    pub(crate) fn gather(&mut self) -> Result<(), i32> {
        match &mut self.packed {
            None => Ok(()),
            Some(packed) => packed.gather(),
        }
    }

    /// Spreads the packed copy over the user's memory.
    ///
    /// # Errors
    /// An MPI error class.
    #[inline]
    pub(crate) fn spread(&mut self) -> Result<(), i32> {
        match &mut self.packed {
            None => Ok(()),
            Some(packed) => packed.spread(),
        }
    }
}

impl Packed {
    fn gather(&mut self) -> Result<(), i32> {
        for Piece { elements, offset, bytes } in &self.pieces {
            let into = self.memory[*offset..*offset + *bytes].as_mut_ptr().cast();
            // SAFETY: MPI's caller vouches for `count` elements at the address; the slice has their packed size.
            unsafe { elements.datatype.pack(elements.count, elements.address, into, *bytes) }
                .map_err(|_| INTERNAL)?;
        }
        Ok(())
    }

    fn spread(&mut self) -> Result<(), i32> {
        // The schedule wrote through an address the compiler does not follow.
        let memory = std::hint::black_box(&self.memory);
        for Piece { elements, offset, bytes } in &self.pieces {
            let from = memory[*offset..*offset + *bytes].as_ptr().cast();
            // SAFETY: as in `gather`.
            unsafe { elements.datatype.unpack(elements.count, from, elements.address, *bytes) }
                .map_err(|_| INTERNAL)?;
        }
        Ok(())
    }
}

const INTERNAL: i32 = hetccl_mca::sys::MPI_ERR_INTERN as i32;
const _: () = assert!(INTERNAL != status::SUCCESS);

fn host(first: *mut c_void, len_bytes: usize) -> Region {
    Region { address: Address(first.expose_provenance()), len_bytes, memory: MemoryType::Host }
}
