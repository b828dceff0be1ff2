//! Copies and fills: when they happen, and what the caller waits for.
//!
//! As the drivers' documentation has it:
//!
//! - Pageable host memory as the source is read before the call returns; the device may get the data later.
//! - Pageable host memory as the target is written before the call returns.
//! - A graph reads and writes pageable memory at each launch.
//! - Pinned memory is read and written when the stream comes to the copy.
//! - Synchronous copies within the device do not make the host wait.

use std::sync::Arc;

use crate::Code;
use crate::memory::{Kind, Span};
use crate::stream::Stream;

/// Does the caller of a copy wait for it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As for the synchronous functions.
    Sync,
    /// As for the asynchronous functions.
    Async,
}

/// Rows of memory at a distance from each other.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Address of the first.
    pub address: usize,
    /// From one row to the next.
    pub pitch_bytes: usize,
}

/// A number of rows of equal size.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Bytes of each row.
    pub width_bytes: usize,
    /// Rows.
    pub height: usize,
}

impl Extent {
    /// One row.
    pub fn line(bytes: usize) -> Extent {
        Extent { width_bytes: bytes, height: 1 }
    }

    fn span(self, rows: Rows) -> Result<Span, Code> {
        if self.height > 1 && rows.pitch_bytes < self.width_bytes {
            return Err(Code::INVALID_VALUE);
        }
        let last = (self.height - 1).checked_mul(rows.pitch_bytes).ok_or(Code::INVALID_VALUE)?;
        Span::of(rows.address, last.checked_add(self.width_bytes).ok_or(Code::INVALID_VALUE)?)
    }

    fn is_empty(self) -> bool {
        self.width_bytes == 0 || self.height == 0
    }
}

/// Copies one row.
pub fn line(
    stream: &Arc<Stream>,
    to: usize,
    from: usize,
    bytes: usize,
    wait: Wait,
) -> Result<(), Code> {
    let row = |address| Rows { address, pitch_bytes: bytes };
    rows(stream, row(to), row(from), Extent::line(bytes), wait)
}

/// Copies rows.
pub fn rows(
    stream: &Arc<Stream>,
    to: Rows,
    from: Rows,
    extent: Extent,
    wait: Wait,
) -> Result<(), Code> {
    if extent.is_empty() {
        return Ok(());
    }
    let (target, source) = (extent.span(to)?, extent.span(from)?);
    let on_device = |span: &Span| span.kind().is_some_and(Kind::on_device);
    let host_must_wait = match wait {
        Wait::Sync => !(on_device(&target) && (on_device(&source) || source.kind().is_none())),
        Wait::Async => target.kind().is_none(),
    };
    let staged_now = source.kind().is_none() && target.kind().is_some() && !stream.is_recording();
    let ticket = if staged_now {
        let staged = stage(&source, from.pitch_bytes, extent);
        stream.submit(move || {
            move_rows(
                target.address(),
                to.pitch_bytes,
                staged.as_ptr() as usize,
                extent.width_bytes,
                extent,
            );
        })?
    } else {
        stream.submit(move || {
            move_rows(target.address(), to.pitch_bytes, source.address(), from.pitch_bytes, extent);
        })?
    };
    if host_must_wait {
        ticket.wait();
    }
    Ok(())
}

/// Fills rows with a pattern, whose size divides their width.
pub fn fill(
    stream: &Arc<Stream>,
    to: Rows,
    pattern: &[u8],
    extent: Extent,
    wait: Wait,
) -> Result<(), Code> {
    if extent.is_empty() {
        return Ok(());
    }
    let target = extent.span(to)?;
    let Some(kind) = target.kind() else { return Err(Code::INVALID_VALUE) };
    if !to.address.is_multiple_of(pattern.len())
        || !extent.width_bytes.is_multiple_of(pattern.len())
    {
        return Err(Code::INVALID_VALUE);
    }
    let row = pattern.repeat(extent.width_bytes / pattern.len());
    let ticket = stream.submit(move || {
        move_rows(target.address(), to.pitch_bytes, row.as_ptr() as usize, 0, extent);
    })?;
    if wait == Wait::Sync && !kind.on_device() {
        ticket.wait();
    }
    Ok(())
}

/// A copy of one row, to run once or more: what a command list keeps.
pub fn operation(to: usize, from: usize, bytes: usize) -> Result<impl Fn() + Send + Sync, Code> {
    let extent = Extent::line(bytes);
    let (target, source) = (Span::of(to, bytes)?, Span::of(from, bytes)?);
    Ok(move || move_rows(target.address(), bytes, source.address(), bytes, extent))
}

/// A fill of one row, to run once or more. The pattern's size divides the row's.
pub fn fill_operation(
    to: usize,
    pattern: &[u8],
    bytes: usize,
) -> Result<impl Fn() + Send + Sync + use<>, Code> {
    if pattern.is_empty() || !bytes.is_multiple_of(pattern.len()) {
        return Err(Code::INVALID_VALUE);
    }
    let target = Span::of(to, bytes)?;
    let row = pattern.repeat(bytes / pattern.len());
    Ok(move || {
        move_rows(target.address(), bytes, row.as_ptr() as usize, bytes, Extent::line(bytes))
    })
}

fn stage(source: &Span, pitch_bytes: usize, extent: Extent) -> Vec<u8> {
    let mut staged = vec![0; extent.width_bytes * extent.height];
    move_rows(
        staged.as_mut_ptr() as usize,
        extent.width_bytes,
        source.address(),
        pitch_bytes,
        extent,
    );
    staged
}

fn move_rows(
    to: usize,
    to_pitch_bytes: usize,
    from: usize,
    from_pitch_bytes: usize,
    extent: Extent,
) {
    for row in 0..extent.height {
        let target = (to + row * to_pitch_bytes) as *mut u8;
        let source = (from + row * from_pitch_bytes) as *const u8;
        // SAFETY: device memory was checked against its allocation, which the span keeps; host memory is the caller's
        // promise. The two may overlap, so this moves.
        unsafe { std::ptr::copy(source, target, extent.width_bytes) };
    }
}
