//! The user's buffers as schedules see them: contiguous bytes.
//!
//! Data without gaps is used where it lies, in host or device memory. Anything else gets a packed copy in host memory,
//! filled before the collective starts and spread out after it has finished.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use hetccl_core::{Address, Block, MemoryType, Region};
use hetccl_mca::{Datatype, DatatypeRef};

use crate::device::{self, Mirror, memory_of};
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

    /// The bytes from the lowest to the highest that any element has, gaps included: offset from the address, and
    /// length.
    pub(crate) fn span(&self) -> (isize, usize) {
        let (true_lb, true_extent) = self.datatype.true_extent();
        let steps = self.datatype.extent_bytes() * (self.count as isize - 1).max(0);
        let lowest = true_lb + steps.min(0);
        let highest = true_lb + true_extent + steps.max(0);
        (lowest, (highest - lowest) as usize)
    }

    /// The kind of memory that holds the elements.
    ///
    /// # Errors
    /// An MPI error class, for memory that is gone.
    pub(crate) fn memory(&self) -> Result<MemoryType, c_int> {
        if self.bytes() == 0 {
            return Ok(MemoryType::Host);
        }
        memory_of(self.address.wrapping_byte_offset(self.span().0))
    }
}

/// A part of a packed buffer, and where it belongs.
#[derive(Debug)]
struct Piece {
    elements: Elements,
    offset: usize,
    bytes: usize,
    memory: MemoryType,
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
    ///
    /// # Errors
    /// An MPI error class, for memory that is gone.
    pub(crate) fn of(elements: Elements) -> Result<View, c_int> {
        let bytes = elements.bytes();
        if bytes == 0 {
            return Ok(View::none());
        }
        if elements.datatype.is_contiguous(elements.count) {
            let first = elements.first_byte();
            return Ok(View { region: region(first, bytes, memory_of(first)?), packed: None });
        }
        let memory = elements.memory()?;
        Ok(View::packed(vec![Piece { elements, offset: 0, bytes, memory }], bytes))
    }

    /// One run of elements, copied when the collective starts: what it writes to them does not change the view.
    ///
    /// # Errors
    /// An MPI error class, for memory that is gone.
    pub(crate) fn copy_of(elements: Elements) -> Result<View, c_int> {
        let (bytes, memory) = (elements.bytes(), elements.memory()?);
        Ok(View::packed(vec![Piece { elements, offset: 0, bytes, memory }], bytes))
    }

    /// Separate runs of elements, and the block of bytes where each is found in the view.
    ///
    /// # Errors
    /// An MPI error class, for memory that is gone.
    pub(crate) fn blocks(runs: &[Elements]) -> Result<(View, Arc<[Block]>), c_int> {
        let contiguous =
            runs.iter().all(|run| run.bytes() == 0 || run.datatype.is_contiguous(run.count));
        let memory = common_memory(runs)?;
        match memory {
            Some(memory) if contiguous => Ok(View::blocks_in_place(runs, memory)),
            _ => View::blocks_packed(runs),
        }
    }

    /// The view spans the user's memory from the first to the last byte of any run; what lies between is left alone.
    fn blocks_in_place(runs: &[Elements], memory: MemoryType) -> (View, Arc<[Block]>) {
        let Some((base, len_bytes)) = extent(runs) else {
            return (View::none(), runs.iter().map(|_| Block::default()).collect());
        };
        let blocks = runs.iter().map(|run| match run.bytes() {
            0 => Block::default(),
            len => Block { start: run.first_byte().addr() - base.addr(), len },
        });
        (View { region: region(base, len_bytes, memory), packed: None }, blocks.collect())
    }

    fn blocks_packed(runs: &[Elements]) -> Result<(View, Arc<[Block]>), c_int> {
        let mut pieces = Vec::with_capacity(runs.len());
        let mut blocks = Vec::with_capacity(runs.len());
        let mut offset = 0;
        for &elements in runs {
            let bytes = elements.bytes();
            blocks.push(Block { start: offset, len: bytes });
            pieces.push(Piece { elements, offset, bytes, memory: elements.memory()? });
            offset += bytes;
        }
        Ok((View::packed(pieces, offset), blocks.into()))
    }

    fn packed(pieces: Vec<Piece>, bytes: usize) -> View {
        let memory = vec![0u8; bytes];
        let region = region(memory.as_ptr().cast_mut().cast(), bytes, MemoryType::Host);
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
        for piece in &self.pieces {
            let into = &mut self.memory[piece.offset..piece.offset + piece.bytes];
            match piece.memory {
                MemoryType::Host => piece.pack(piece.elements.address, into)?,
                _ => piece.pack_from_device(into)?,
            }
        }
        Ok(())
    }

    fn spread(&mut self) -> Result<(), i32> {
        // The schedule wrote through an address the compiler does not follow.
        let memory = std::hint::black_box(&self.memory);
        for piece in &self.pieces {
            let from = &memory[piece.offset..piece.offset + piece.bytes];
            match piece.memory {
                MemoryType::Host => piece.unpack(from, piece.elements.address)?,
                _ => piece.unpack_to_device(from)?,
            }
        }
        Ok(())
    }
}

impl Piece {
    /// Packs elements that lie as at `address`.
    fn pack(&self, address: *mut c_void, into: &mut [u8]) -> Result<(), i32> {
        let Elements { count, datatype, .. } = self.elements;
        // SAFETY: MPI's caller vouches for `count` elements at the address (or `pack_from_device` has copied their
        // span); the slice has their packed size.
        unsafe { datatype.pack(count, address, into.as_mut_ptr().cast(), into.len()) }
            .map_err(|_| INTERNAL)
    }

    fn unpack(&self, from: &[u8], address: *mut c_void) -> Result<(), i32> {
        let Elements { count, datatype, .. } = self.elements;
        // SAFETY: as in `pack`.
        unsafe { datatype.unpack(count, from.as_ptr().cast(), address, from.len()) }
            .map_err(|_| INTERNAL)
    }

    fn is_contiguous(&self) -> bool {
        self.elements.datatype.is_contiguous(self.elements.count)
    }

    /// Open MPI's convertor reads host memory, so elements with gaps go through a copy of their span.
    fn pack_from_device(&self, into: &mut [u8]) -> Result<(), i32> {
        if into.is_empty() {
            return Ok(());
        }
        if self.is_contiguous() {
            return device::read(self.elements.first_byte(), self.memory, into);
        }
        let mut mirror = Mirror::of(self.elements, self.memory)?;
        self.pack(mirror.address(), into)
    }

    /// As [`pack_from_device`](Piece::pack_from_device); the gaps keep what they have.
    fn unpack_to_device(&self, from: &[u8]) -> Result<(), i32> {
        if from.is_empty() {
            return Ok(());
        }
        if self.is_contiguous() {
            return device::write(self.elements.first_byte(), self.memory, from);
        }
        let mut mirror = Mirror::of(self.elements, self.memory)?;
        self.unpack(from, mirror.address())?;
        mirror.store()
    }
}

/// The kind of memory that all runs are in, if schedules can work on them where they lie: in host memory, or as the
/// whole of one piece of a device's.
///
/// # Errors
/// An MPI error class, for memory that is gone.
fn common_memory(runs: &[Elements]) -> Result<Option<MemoryType>, c_int> {
    if !crate::state::Plugin::get().has_gpus() {
        return Ok(Some(MemoryType::Host));
    }
    let mut memory = None;
    for run in runs.iter().filter(|run| run.bytes() > 0) {
        let here = run.memory()?;
        if *memory.get_or_insert(here) != here {
            return Ok(None);
        }
    }
    let memory = memory.unwrap_or(MemoryType::Host);
    Ok((memory == MemoryType::Host || is_whole(runs)).then_some(memory))
}

/// Whether runs in device memory fill their extent, inside one allocation.
fn is_whole(runs: &[Elements]) -> bool {
    let Some((base, len_bytes)) = extent(runs) else { return true };
    let filled: usize = runs.iter().map(Elements::bytes).sum();
    filled == len_bytes
        && device::in_one_allocation(base, base.wrapping_byte_add(len_bytes.saturating_sub(1)))
}

/// From the first to the last byte of any contiguous run; `None` when there is none.
fn extent(runs: &[Elements]) -> Option<(*mut c_void, usize)> {
    let filled = || runs.iter().filter(|run| run.bytes() > 0);
    let base = filled().map(|run| run.first_byte()).min_by_key(|first| first.addr())?;
    let end = filled().map(|run| run.first_byte().addr() + run.bytes()).max()?;
    Some((base, end - base.addr()))
}

const INTERNAL: i32 = hetccl_mca::sys::MPI_ERR_INTERN as i32;
const _: () = assert!(INTERNAL != status::SUCCESS);

fn region(first: *mut c_void, len_bytes: usize, memory: MemoryType) -> Region {
    Region { address: Address(first.expose_provenance()), len_bytes, memory }
}
