//! Events. Their counters can lie in shared memory, so that several processes see the same event.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::file::{SharedFile, next_number};
use crate::graph::Recording;
use crate::process::Handle;
use crate::stream::{Stream, ValueWait};
use crate::{Code, memory};

const STATE_BYTES: usize = 4096;

#[repr(C)]
#[derive(Debug, Default)]
struct State {
    recorded: AtomicU64,
    reached: AtomicU64,
    reached_ns: AtomicU64,
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    /// Flags that it was made with.
    pub flags: u32,
    /// Does it take the time?
    pub timing: bool,
    /// Handle of the context that it was made in; 0 without contexts.
    pub context: usize,
    device: usize,
    number: u64,
    state: Placed,
    /// Where in a graph it was recorded last, if it was.
    captured: Mutex<Option<Recording>>,
}

#[derive(Debug)]
enum Placed {
    Here(State),
    Shared { address: usize, file: SharedFile },
}

impl Event {
    /// A new event; `shared` for one that other processes can open.
    pub fn new(
        flags: u32,
        timing: bool,
        shared: bool,
        device: usize,
        context: usize,
    ) -> Result<Arc<Event>, Code> {
        let number = next_number();
        let state = if shared {
            let file = SharedFile::create(number, STATE_BYTES)?;
            Placed::Shared { address: file.map(0, STATE_BYTES)?, file }
        } else {
            Placed::Here(State::default())
        };
        let captured = Mutex::new(None);
        Ok(Arc::new(Event { flags, timing, context, device, number, state, captured }))
    }

    /// Another process's event.
    pub fn open(handle: Handle, flags: u32, context: usize) -> Result<Arc<Event>, Code> {
        let file = SharedFile::open(handle.pid, handle.number)?;
        if handle.bytes != 0 || file.bytes() != STATE_BYTES {
            return Err(Code::INVALID_VALUE);
        }
        let state = Placed::Shared { address: file.map(0, STATE_BYTES)?, file };
        Ok(Arc::new(Event {
            flags,
            timing: false,
            context,
            device: handle.device,
            number: next_number(),
            state,
            captured: Mutex::new(None),
        }))
    }

    /// A handle for other processes; `None` for an event that was not made for them.
    pub fn handle(&self) -> Option<Handle> {
        match &self.state {
            Placed::Here(_) => None,
            Placed::Shared { .. } => Some(Handle::new(self.number, 0, self.device)),
        }
    }

    /// Can streams of this device record it?
    pub fn is_of_device(&self, device: usize) -> bool {
        self.device == device
    }

    fn captured(&self) -> MutexGuard<'_, Option<Recording>> {
        self.captured.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Refuses questions about an event that was recorded into a graph.
    pub fn check_not_captured(&self) -> Result<(), Code> {
        match &*self.captured() {
            Some(recording) => Err(recording.spoil(Code::CAPTURED_EVENT)),
            None => Ok(()),
        }
    }

    /// Notes the work that is in the stream now; in a graph that it records, where that has come to.
    pub fn record(self: &Arc<Event>, stream: &Arc<Stream>) -> Result<(), Code> {
        if let Some(recording) = &*stream.recording() {
            *self.captured() = Some(recording.clone());
            return Ok(());
        }
        *self.captured() = None;
        self.record_external(stream)
    }

    /// Notes the work that is in the stream now; a graph that it records will do so at each launch.
    pub fn record_external(self: &Arc<Event>, stream: &Arc<Stream>) -> Result<(), Code> {
        let event = self.clone();
        stream.submit_each(move || {
            let record = event.state().recorded.fetch_add(1, Ordering::AcqRel) + 1;
            let event = event.clone();
            Box::new(move || {
                event.state().reached_ns.store(now_ns(), Ordering::Release);
                event.state().reached.fetch_max(record, Ordering::AcqRel);
            })
        })?;
        Ok(())
    }

    /// Has the recorded work finished? Without a record, yes.
    pub fn is_reached(&self) -> bool {
        self.has_reached(self.state().recorded.load(Ordering::Acquire))
    }

    /// Waits until the recorded work has finished.
    pub fn synchronize(&self) {
        self.wait_for(self.state().recorded.load(Ordering::Acquire));
    }

    /// Has later work of `stream` wait for the work that is recorded now. A wait for a place in a graph makes the stream
    /// record as well.
    pub fn hold_back(self: &Arc<Event>, stream: &Arc<Stream>) -> Result<(), Code> {
        if let Some(place) = &*self.captured() {
            return place.hold_back(stream);
        }
        if let Some(recording) = &*stream.recording() {
            return Err(recording.spoil(Code::STREAM_CAPTURE_ISOLATION));
        }
        let record = self.state().recorded.load(Ordering::Acquire);
        if !self.has_reached(record) {
            let event = self.clone();
            stream.enqueue(move || event.wait_for(record))?;
        }
        Ok(())
    }

    /// Has later work of `stream` wait for what has been recorded when it is enqueued; in a graph, when that is launched.
    pub fn hold_back_external(self: &Arc<Event>, stream: &Arc<Stream>) -> Result<(), Code> {
        let event = self.clone();
        stream.submit_each(move || {
            let event = event.clone();
            let record = event.state().recorded.load(Ordering::Acquire);
            Box::new(move || event.wait_for(record))
        })?;
        Ok(())
    }

    /// Milliseconds between two events.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32, Code> {
        let recorded = |event: &Event| event.state().recorded.load(Ordering::Acquire) > 0;
        if !(self.timing && end.timing && recorded(self) && recorded(end)) {
            return Err(Code::INVALID_HANDLE);
        }
        if !(self.is_reached() && end.is_reached()) {
            return Err(Code::NOT_READY);
        }
        let at_ns = |event: &Event| event.state().reached_ns.load(Ordering::Acquire) as f64;
        Ok(((at_ns(end) - at_ns(self)) / 1e6) as f32)
    }

    fn has_reached(&self, record: u64) -> bool {
        self.state().reached.load(Ordering::Acquire) >= record
    }

    fn wait_for(&self, record: u64) {
        poll(|| self.has_reached(record));
    }

    fn state(&self) -> &State {
        match &self.state {
            Placed::Here(state) => state,
            // SAFETY: a mapping of STATE_BYTES that lives as long as the event; the counters are atomic, and zero at first.
            Placed::Shared { address, .. } => unsafe { &*(*address as *const State) },
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Placed::Shared { address, file } = &self.state {
            file.unlink();
            // SAFETY: mapped for this event, which is gone.
            unsafe { libc::munmap(*address as *mut libc::c_void, STATE_BYTES) };
        }
    }
}

/// How a wait for a value in memory compares.
#[derive(Clone, Copy, Debug)]
pub enum Comparison {
    /// At least the value, going round: the difference is not negative (CUDA).
    AtLeastCyclic,
    /// At least the value (HIP).
    AtLeast,
    /// The value.
    Equal,
    /// Has a bit in common.
    And,
    /// Not all bits are 1 in one or the other.
    Nor,
}

impl Comparison {
    /// From the flags of CUDA and HIP, which mean different things by "at least".
    pub fn from_flags(flags: u32, at_least: Comparison) -> Result<Comparison, Code> {
        match flags & 0xff {
            0 => Ok(at_least),
            1 => Ok(Comparison::Equal),
            2 => Ok(Comparison::And),
            3 => Ok(Comparison::Nor),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn holds(self, memory: u64, value: u64, mask: u64, bytes: usize) -> bool {
        let used = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let masked = memory & mask;
        match self {
            Comparison::AtLeastCyclic if bytes == 4 => {
                (masked as u32).wrapping_sub(value as u32) as i32 >= 0
            }
            Comparison::AtLeastCyclic => masked.wrapping_sub(value) as i64 >= 0,
            Comparison::AtLeast => masked >= value,
            Comparison::Equal => masked == value,
            Comparison::And => masked & value != 0,
            Comparison::Nor => !(masked | (value & mask)) & used != 0,
        }
    }
}

/// Has later work of `stream` wait until memory of 4 or 8 `bytes` holds what is asked.
pub fn wait_value(
    stream: &Arc<Stream>,
    address: usize,
    bytes: usize,
    value: u64,
    mask: u64,
    comparison: Comparison,
) -> Result<(), Code> {
    let span = Arc::new(value_span(address, bytes)?);
    let owner = stream.clone();
    let queued = stream.submit_each(move || {
        let (span, waiting) = (span.clone(), ValueWait::new(&owner));
        Box::new(move || {
            poll(|| comparison.holds(load(&span, bytes), value, mask, bytes));
            drop(waiting);
        })
    });
    queued.map(drop)
}

/// Writes a value of 4 or 8 `bytes` when the stream comes to it.
pub fn write_value(
    stream: &Arc<Stream>,
    address: usize,
    bytes: usize,
    value: u64,
) -> Result<(), Code> {
    let span = value_span(address, bytes)?;
    stream.submit(move || {
        let pointer = span.address() as *mut u64;
        // SAFETY: the span is of `bytes`, aligned, and keeps its memory.
        unsafe {
            match bytes {
                4 => std::sync::atomic::AtomicU32::from_ptr(pointer.cast())
                    .store(value as u32, Ordering::Release),
                _ => AtomicU64::from_ptr(pointer).store(value, Ordering::Release),
            }
        }
    })?;
    Ok(())
}

/// Only memory that the device reaches: not pageable host memory.
fn value_span(address: usize, bytes: usize) -> Result<memory::Span, Code> {
    let span = memory::Span::of(address, bytes)?;
    if !address.is_multiple_of(bytes) || span.kind().is_none() {
        return Err(Code::INVALID_VALUE);
    }
    Ok(span)
}

fn load(span: &memory::Span, bytes: usize) -> u64 {
    let pointer = span.address() as *mut u64;
    // SAFETY: the span is of `bytes`, aligned, and keeps its memory.
    unsafe {
        match bytes {
            4 => u64::from(
                std::sync::atomic::AtomicU32::from_ptr(pointer.cast()).load(Ordering::Acquire),
            ),
            _ => AtomicU64::from_ptr(pointer).load(Ordering::Acquire),
        }
    }
}

fn poll(done: impl Fn() -> bool) {
    let mut pause_us = 5;
    while !done() {
        std::thread::sleep(Duration::from_micros(pause_us));
        pause_us = (pause_us * 2).min(200);
    }
}

fn now_ns() -> u64 {
    // SAFETY: `timespec` is plain data that the call fills.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Comparison;

    #[test]
    fn comparisons() {
        let all = u64::MAX;
        assert!(Comparison::AtLeastCyclic.holds(2, u64::from(u32::MAX), all, 4));
        assert!(!Comparison::AtLeast.holds(2, u64::from(u32::MAX), all, 4));
        assert!(!Comparison::AtLeastCyclic.holds(1, 2, all, 8));
        assert!(Comparison::Equal.holds(0x102, 2, 0xff, 4));
        assert!(Comparison::And.holds(6, 2, all, 4));
        assert!(!Comparison::Nor.holds(0xffff_0000, 0xffff, all, 4));
        assert!(Comparison::from_flags(7, Comparison::AtLeast).is_err());
    }
}
