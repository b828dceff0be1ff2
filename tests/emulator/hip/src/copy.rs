//! Copies and fills.

use hetccl_emulated_device::copy::{self, Extent, Rows, Wait};
use hetccl_emulated_device::memory::Span;
use hetccl_emulated_device::{Code, entries};

use crate::device::checked;
use crate::stream;

const INVALID_DIRECTION: Code = Code(21);

/// `hipMemcpyKind`: may the target and the source be pageable host memory?
fn pageable(kind: u32) -> Result<[bool; 2], Code> {
    match kind {
        0 | 4 => Ok([true, true]),
        1 => Ok([false, true]),
        2 => Ok([true, false]),
        3 | 1024 => Ok([false, false]),
        _ => Err(INVALID_DIRECTION),
    }
}

fn line(
    to: usize,
    from: usize,
    bytes: usize,
    kind: u32,
    stream: usize,
    wait: Wait,
) -> Result<(), Code> {
    let row = |address| Rows { address, pitch_bytes: bytes };
    rows(row(to), row(from), Extent::line(bytes), kind, stream, wait)
}

fn rows(
    to: Rows,
    from: Rows,
    extent: Extent,
    kind: u32,
    stream: usize,
    wait: Wait,
) -> Result<(), Code> {
    for (rows, pageable) in [to, from].into_iter().zip(pageable(kind)?) {
        let empty = extent.width_bytes == 0 || extent.height == 0;
        if !pageable && !empty && Span::of(rows.address, extent.width_bytes)?.kind().is_none() {
            return Err(Code::INVALID_VALUE);
        }
    }
    copy::rows(&stream::get(stream)?, to, from, extent, wait)
}

fn fill(to: usize, pattern: &[u8], count: usize, stream: usize, wait: Wait) -> Result<(), Code> {
    let bytes = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
    let rows = Rows { address: to, pitch_bytes: bytes };
    copy::fill(&stream::get(stream)?, rows, pattern, Extent::line(bytes), wait)
}

fn fill_rows(to: Rows, value: i32, extent: Extent, stream: usize, wait: Wait) -> Result<(), Code> {
    copy::fill(&stream::get(stream)?, to, &[value as u8], extent, wait)
}

const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 3;

entries! {
    fn hipMemcpy = hipMemcpy_spt(to: usize, from: usize, bytes: usize, kind: u32) {
        line(to, from, bytes, kind, 0, Wait::Sync)
    }

    fn hipMemcpyWithStream(to: usize, from: usize, bytes: usize, kind: u32, stream: usize) {
        line(to, from, bytes, kind, stream, Wait::Sync)
    }

    fn hipMemcpyHtoD(to: usize, from: usize, bytes: usize) {
        line(to, from, bytes, HOST_TO_DEVICE, 0, Wait::Sync)
    }

    fn hipMemcpyDtoH(to: usize, from: usize, bytes: usize) {
        line(to, from, bytes, DEVICE_TO_HOST, 0, Wait::Sync)
    }

    fn hipMemcpyDtoD(to: usize, from: usize, bytes: usize) {
        line(to, from, bytes, DEVICE_TO_DEVICE, 0, Wait::Sync)
    }

    fn hipMemcpyAsync = hipMemcpyAsync_spt(to: usize, from: usize, bytes: usize, kind: u32, stream: usize) {
        line(to, from, bytes, kind, stream, Wait::Async)
    }

    fn hipMemcpyHtoDAsync(to: usize, from: usize, bytes: usize, stream: usize) {
        line(to, from, bytes, HOST_TO_DEVICE, stream, Wait::Async)
    }

    fn hipMemcpyDtoHAsync(to: usize, from: usize, bytes: usize, stream: usize) {
        line(to, from, bytes, DEVICE_TO_HOST, stream, Wait::Async)
    }

    fn hipMemcpyDtoDAsync(to: usize, from: usize, bytes: usize, stream: usize) {
        line(to, from, bytes, DEVICE_TO_DEVICE, stream, Wait::Async)
    }

    fn hipMemcpyPeer(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize) {
        checked(to_device)?;
        checked(from_device)?;
        line(to, from, bytes, DEVICE_TO_DEVICE, 0, Wait::Sync)
    }

    fn hipMemcpyPeerAsync(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize, stream: usize) {
        checked(to_device)?;
        checked(from_device)?;
        line(to, from, bytes, DEVICE_TO_DEVICE, stream, Wait::Async)
    }

    fn hipMemcpy2D = hipMemcpy2D_spt(
        to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, kind: u32
    ) {
        let (to, from) = (Rows { address: to, pitch_bytes: to_pitch }, Rows { address: from, pitch_bytes: from_pitch });
        rows(to, from, Extent { width_bytes: width, height }, kind, 0, Wait::Sync)
    }

    fn hipMemcpy2DAsync = hipMemcpy2DAsync_spt(
        to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, kind: u32, stream: usize
    ) {
        let (to, from) = (Rows { address: to, pitch_bytes: to_pitch }, Rows { address: from, pitch_bytes: from_pitch });
        rows(to, from, Extent { width_bytes: width, height }, kind, stream, Wait::Async)
    }

    fn hipMemset = hipMemset_spt(to: usize, value: i32, bytes: usize) {
        fill(to, &[value as u8], bytes, 0, Wait::Sync)
    }

    fn hipMemsetAsync = hipMemsetAsync_spt(to: usize, value: i32, bytes: usize, stream: usize) {
        fill(to, &[value as u8], bytes, stream, Wait::Async)
    }

    fn hipMemsetD8(to: usize, value: u8, count: usize) {
        fill(to, &[value], count, 0, Wait::Sync)
    }

    fn hipMemsetD8Async(to: usize, value: u8, count: usize, stream: usize) {
        fill(to, &[value], count, stream, Wait::Async)
    }

    fn hipMemsetD16(to: usize, value: u16, count: usize) {
        fill(to, &value.to_ne_bytes(), count, 0, Wait::Sync)
    }

    fn hipMemsetD16Async(to: usize, value: u16, count: usize, stream: usize) {
        fill(to, &value.to_ne_bytes(), count, stream, Wait::Async)
    }

    fn hipMemsetD32(to: usize, value: i32, count: usize) {
        fill(to, &value.to_ne_bytes(), count, 0, Wait::Sync)
    }

    fn hipMemsetD32Async(to: usize, value: i32, count: usize, stream: usize) {
        fill(to, &value.to_ne_bytes(), count, stream, Wait::Async)
    }

    fn hipMemset2D(to: usize, pitch: usize, value: i32, width: usize, height: usize) {
        let extent = Extent { width_bytes: width, height };
        fill_rows(Rows { address: to, pitch_bytes: pitch }, value, extent, 0, Wait::Sync)
    }

    fn hipMemset2DAsync(to: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize) {
        let extent = Extent { width_bytes: width, height };
        fill_rows(Rows { address: to, pitch_bytes: pitch }, value, extent, stream, Wait::Async)
    }
}
