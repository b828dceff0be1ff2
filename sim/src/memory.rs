//! A rank's pretend memory: three arenas of elements behind opaque addresses.

use hetccl_core::{Address, MemoryType, Region};

/// Bytes of an element: two numbers of four bytes.
pub const ELEMENT_BYTES: usize = 8;

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Both numbers add up: any order gives the same.
    Sum,
    /// The element (a, b) is the map x -> a x + b, and maps are applied one after the other: the order matters.
    Affine,
}

impl Arithmetic {
    /// `left op right`; wraps.
    pub fn combine(self, left: [u32; 2], right: [u32; 2]) -> [u32; 2] {
        match self {
            Arithmetic::Sum => std::array::from_fn(|i| left[i].wrapping_add(right[i])),
            Arithmetic::Affine => [
                left[0].wrapping_mul(right[0]),
                left[1].wrapping_mul(right[0]).wrapping_add(right[1]),
            ],
        }
    }

    /// The same for all elements of two vectors.
    pub(crate) fn combine_bytes(self, left: &[u8], right: &[u8]) -> Vec<u8> {
        let pairs = elements(left).into_iter().zip(elements(right));
        pairs
            .map(|(a, b)| self.combine(a, b))
            .flat_map(|element| element.into_iter().flat_map(u32::to_le_bytes))
            .collect()
    }
}

/// The arenas start at these addresses; nothing else is valid.
const BASES: [usize; 3] = [1 << 40, 2 << 40, 3 << 40];

/// Input, output and scratch of one rank.
#[derive(Clone, Debug)]
pub struct Memory {
    arenas: [Vec<u8>; 3],
}

impl Memory {
    /// Memory with these initial elements and so many bytes of scratch, which hold a pattern.
    pub fn new(input: &[[u32; 2]], output: &[[u32; 2]], scratch_bytes: usize) -> Memory {
        let bytes = |elements: &[[u32; 2]]| {
            elements.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
        };
        Memory { arenas: [bytes(input), bytes(output), vec![0xa5; scratch_bytes]] }
    }

    /// Input, output and scratch, for a binding.
    pub fn regions(&self) -> [Region; 3] {
        std::array::from_fn(|i| Region {
            address: Address(BASES[i]),
            len_bytes: self.arenas[i].len(),
            memory: MemoryType::Host,
        })
    }

    /// The output's elements.
    pub fn output(&self) -> Vec<[u32; 2]> {
        elements(&self.arenas[1])
    }

    /// Reads a region.
    ///
    /// # Panics
    /// When the engine hands out an address that it was not given.
    pub fn read(&self, region: Region) -> &[u8] {
        let (arena, start) = locate(region);
        &self.arenas[arena][start..start + region.len_bytes]
    }

    /// Writes a region of the length of `bytes`.
    ///
    /// # Panics
    /// As [`read`](Memory::read).
    pub fn write(&mut self, region: Region, bytes: &[u8]) {
        let (arena, start) = locate(region);
        self.arenas[arena][start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// `into = left op right`.
    ///
    /// # Panics
    /// As [`read`](Memory::read).
    pub fn reduce(&mut self, arithmetic: Arithmetic, left: Region, right: Region, into: Region) {
        let sums = arithmetic.combine_bytes(self.read(left), self.read(right));
        self.write(into, &sums);
    }
}

fn locate(region: Region) -> (usize, usize) {
    if region.len_bytes == 0 {
        return (0, 0);
    }
    let arena = region.address.0 >> 40;
    assert!((1..=3).contains(&arena), "no memory at {:?}", region.address);
    (arena - 1, region.address.0 - BASES[arena - 1])
}

fn elements(bytes: &[u8]) -> Vec<[u32; 2]> {
    let number = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(ELEMENT_BYTES).map(|e| [number(&e[..4]), number(&e[4..])]).collect()
}
