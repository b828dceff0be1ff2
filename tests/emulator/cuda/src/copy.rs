//! Copies and fills.

use hetccl_emulated_device::abi::In;
use hetccl_emulated_device::copy::{self, Extent, Rows, Wait};
use hetccl_emulated_device::memory::Span;
use hetccl_emulated_device::{Code, entries};

use crate::context::with_handle;
use crate::stream;

/// A copy whose device sides the caller names: pageable host memory is none (pinned memory has a device address).
fn typed(
    to: usize,
    from: usize,
    bytes: usize,
    device: [bool; 2],
    stream: usize,
    wait: Wait,
) -> Result<(), Code> {
    for (pointer, must_be_device) in [to, from].into_iter().zip(device) {
        if must_be_device && bytes > 0 && Span::of(pointer, bytes)?.kind().is_none() {
            return Err(Code::INVALID_VALUE);
        }
    }
    if wait == Wait::Sync || bytes == 0 {
        return copy::line(&stream::get(stream)?, to, from, bytes, wait);
    }
    let queue = stream::get_for_work(stream)?;
    let mut is_pageable = false;
    for pointer in [to, from] {
        match Span::of(pointer, bytes)?.context() {
            Some(owner) => with_handle(owner).iter().for_each(|owner| owner.domain.gate()),
            None => is_pageable |= pointer == to,
        }
    }
    // The caller of a copy to pageable memory waits for it, with the same consequences as one that loads code.
    let _locked = if is_pageable { Some(queue.domain()?.lock_out()) } else { None };
    copy::line(&queue, to, from, bytes, wait)
}

fn fill(to: usize, pattern: &[u8], count: usize, stream: usize, wait: Wait) -> Result<(), Code> {
    let bytes = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
    let rows = Rows { address: to, pitch_bytes: bytes };
    copy::fill(&stream::get(stream)?, rows, pattern, Extent::line(bytes), wait)
}

fn fill_rows(
    to: Rows,
    pattern: &[u8],
    count: usize,
    height: usize,
    stream: usize,
    wait: Wait,
) -> Result<(), Code> {
    let width_bytes = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
    copy::fill(&stream::get(stream)?, to, pattern, Extent { width_bytes, height }, wait)
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2d {
    from: Side,
    to: Side,
    width_bytes: usize,
    height: usize,
}

/// One side of a [`Copy2d`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side {
    x_bytes: usize,
    y: usize,
    memory_type: u32,
    host: usize,
    device: usize,
    array: usize,
    pitch_bytes: usize,
}

impl Side {
    fn rows(&self, width_bytes: usize) -> Result<Rows, Code> {
        let base = match self.memory_type {
            1 => self.host,
            2 | 4 => self.device,
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let pitch_bytes = if self.pitch_bytes == 0 { width_bytes } else { self.pitch_bytes };
        Ok(Rows { address: base + self.y * pitch_bytes + self.x_bytes, pitch_bytes })
    }
}

fn copy_2d(what: In<Copy2d>, stream: usize, wait: Wait) -> Result<(), Code> {
    let what = what.get()?;
    let extent = Extent { width_bytes: what.width_bytes, height: what.height };
    let (to, from) = (what.to.rows(what.width_bytes)?, what.from.rows(what.width_bytes)?);
    copy::rows(&stream::get(stream)?, to, from, extent, wait)
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<Copy2d>() == 128);
};

entries! {
    fn cuMemcpy = cuMemcpy_ptds(to: usize, from: usize, bytes: usize) {
        typed(to, from, bytes, [false, false], 0, Wait::Sync)
    }

    fn cuMemcpyHtoD_v2 = cuMemcpyHtoD_v2_ptds(to: usize, from: usize, bytes: usize) {
        typed(to, from, bytes, [true, false], 0, Wait::Sync)
    }

    fn cuMemcpyDtoH_v2 = cuMemcpyDtoH_v2_ptds(to: usize, from: usize, bytes: usize) {
        typed(to, from, bytes, [false, true], 0, Wait::Sync)
    }

    fn cuMemcpyDtoD_v2 = cuMemcpyDtoD_v2_ptds(to: usize, from: usize, bytes: usize) {
        typed(to, from, bytes, [true, true], 0, Wait::Sync)
    }

    fn cuMemcpyPeer = cuMemcpyPeer_ptds(to: usize, to_context: usize, from: usize, from_context: usize, bytes: usize) {
        with_handle(to_context)?;
        with_handle(from_context)?;
        typed(to, from, bytes, [true, true], 0, Wait::Sync)
    }

    fn cuMemcpyAsync = cuMemcpyAsync_ptsz(to: usize, from: usize, bytes: usize, stream: usize) {
        typed(to, from, bytes, [false, false], stream, Wait::Async)
    }

    fn cuMemcpyHtoDAsync_v2 = cuMemcpyHtoDAsync_v2_ptsz(to: usize, from: usize, bytes: usize, stream: usize) {
        typed(to, from, bytes, [true, false], stream, Wait::Async)
    }

    fn cuMemcpyDtoHAsync_v2 = cuMemcpyDtoHAsync_v2_ptsz(to: usize, from: usize, bytes: usize, stream: usize) {
        typed(to, from, bytes, [false, true], stream, Wait::Async)
    }

    fn cuMemcpyDtoDAsync_v2 = cuMemcpyDtoDAsync_v2_ptsz(to: usize, from: usize, bytes: usize, stream: usize) {
        typed(to, from, bytes, [true, true], stream, Wait::Async)
    }

    fn cuMemcpyPeerAsync = cuMemcpyPeerAsync_ptsz(
        to: usize, to_context: usize, from: usize, from_context: usize, bytes: usize, stream: usize
    ) {
        with_handle(to_context)?;
        with_handle(from_context)?;
        typed(to, from, bytes, [true, true], stream, Wait::Async)
    }

    fn cuMemcpy2D_v2 = cuMemcpy2D_v2_ptds(what: In<Copy2d>) {
        copy_2d(what, 0, Wait::Sync)
    }

    fn cuMemcpy2DUnaligned_v2 = cuMemcpy2DUnaligned_v2_ptds(what: In<Copy2d>) {
        copy_2d(what, 0, Wait::Sync)
    }

    fn cuMemcpy2DAsync_v2 = cuMemcpy2DAsync_v2_ptsz(what: In<Copy2d>, stream: usize) {
        copy_2d(what, stream, Wait::Async)
    }

    fn cuMemsetD8_v2 = cuMemsetD8_v2_ptds(to: usize, value: u8, count: usize) {
        fill(to, &[value], count, 0, Wait::Sync)
    }

    fn cuMemsetD16_v2 = cuMemsetD16_v2_ptds(to: usize, value: u16, count: usize) {
        fill(to, &value.to_ne_bytes(), count, 0, Wait::Sync)
    }

    fn cuMemsetD32_v2 = cuMemsetD32_v2_ptds(to: usize, value: u32, count: usize) {
        fill(to, &value.to_ne_bytes(), count, 0, Wait::Sync)
    }

    fn cuMemsetD8Async = cuMemsetD8Async_ptsz(to: usize, value: u8, count: usize, stream: usize) {
        fill(to, &[value], count, stream, Wait::Async)
    }

    fn cuMemsetD16Async = cuMemsetD16Async_ptsz(to: usize, value: u16, count: usize, stream: usize) {
        fill(to, &value.to_ne_bytes(), count, stream, Wait::Async)
    }

    fn cuMemsetD32Async = cuMemsetD32Async_ptsz(to: usize, value: u32, count: usize, stream: usize) {
        fill(to, &value.to_ne_bytes(), count, stream, Wait::Async)
    }

    fn cuMemsetD2D8_v2 = cuMemsetD2D8_v2_ptds(to: usize, pitch: usize, value: u8, width: usize, height: usize) {
        fill_rows(Rows { address: to, pitch_bytes: pitch }, &[value], width, height, 0, Wait::Sync)
    }

    fn cuMemsetD2D32_v2 = cuMemsetD2D32_v2_ptds(to: usize, pitch: usize, value: u32, width: usize, height: usize) {
        fill_rows(Rows { address: to, pitch_bytes: pitch }, &value.to_ne_bytes(), width, height, 0, Wait::Sync)
    }

    fn cuMemsetD2D8Async = cuMemsetD2D8Async_ptsz(
        to: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize
    ) {
        fill_rows(Rows { address: to, pitch_bytes: pitch }, &[value], width, height, stream, Wait::Async)
    }

    fn cuMemsetD2D32Async = cuMemsetD2D32Async_ptsz(
        to: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize
    ) {
        fill_rows(Rows { address: to, pitch_bytes: pitch }, &value.to_ne_bytes(), width, height, stream, Wait::Async)
    }
}
