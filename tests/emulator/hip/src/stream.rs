//! Streams and events.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use hetccl_emulated_device::abi::{Out, Table};
use hetccl_emulated_device::event::{self, Comparison, Event};
use hetccl_emulated_device::stream::{Role, Stream};
use hetccl_emulated_device::{Code, entries, graph};

use crate::device::{current, domain};
use crate::entry::default_is_per_thread;

const LEGACY: usize = 1;
const PER_THREAD: usize = 2;
const NON_BLOCKING: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const ALL_EVENT_FLAGS: u32 = 0xe000_0007;

static STREAMS: Table<Stream> = Table::new(3);
static EVENTS: Table<Event> = Table::new(4);

thread_local! {
    /// This thread's stream of each device.
    static OWN: RefCell<Vec<(usize, OwnStream)>> = const { RefCell::new(Vec::new()) };
}

/// Ends with its thread.
struct OwnStream(Arc<Stream>);

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The stream with this handle. The handles below 3 mean a default stream of the current device.
pub(crate) fn get(handle: usize) -> Result<Arc<Stream>, Code> {
    match handle {
        0 if default_is_per_thread() => own(current()?),
        0 | LEGACY => Ok(domain(current()?).null.clone()),
        PER_THREAD => own(current()?),
        _ => STREAMS.get(handle),
    }
}

/// The event with this handle.
pub(crate) fn event(handle: usize) -> Result<Arc<Event>, Code> {
    EVENTS.get(handle)
}

/// Takes in an event of another process.
pub(crate) fn insert_event(event: Arc<Event>) -> usize {
    EVENTS.insert(event)
}

fn own(device: usize) -> Result<Arc<Stream>, Code> {
    OWN.with_borrow_mut(|own| {
        if let Some((_, stream)) = own.iter().find(|(of, _)| *of == device) {
            return Ok(stream.0.clone());
        }
        let stream = domain(device).stream(Role::Blocking, 0, 0);
        own.push((device, OwnStream(stream.clone())));
        Ok(stream)
    })
}

/// A stream whose graph would have to hold memory operations, which HIP can't have there.
fn not_recording(stream: usize) -> Result<Arc<Stream>, Code> {
    let stream = get(stream)?;
    graph::check_wait(&stream)?;
    Ok(stream)
}

fn create(stream: Out<usize>, flags: u32, priority: i32) -> Result<(), Code> {
    stream.check()?;
    let role = match flags {
        0 => Role::Blocking,
        NON_BLOCKING => Role::NonBlocking,
        _ => return Err(Code::INVALID_VALUE),
    };
    stream.set(STREAMS.insert(domain(current()?).stream(role, flags, priority)))
}

fn create_event(event: Out<usize>, flags: u32) -> Result<(), Code> {
    event.check()?;
    let (timing, shared) = (flags & DISABLE_TIMING == 0, flags & INTERPROCESS != 0);
    if flags & !ALL_EVENT_FLAGS != 0 || shared && timing {
        return Err(Code::INVALID_VALUE);
    }
    event.set(EVENTS.insert(Event::new(flags, timing, shared, current()?, 0)?))
}

/// `hipHostFn_t`.
type HostFunction = extern "C" fn(*mut c_void);
/// `hipStreamCallback_t`.
type Callback = extern "C" fn(usize, i32, *mut c_void);

entries! {
    fn hipStreamCreate(stream: Out<usize>) {
        create(stream, 0, 0)
    }

    fn hipStreamCreateWithFlags(stream: Out<usize>, flags: u32) {
        create(stream, flags, 0)
    }

    fn hipStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) {
        create(stream, flags, priority.clamp(-1, 1))
    }

    fn hipStreamDestroy(stream: usize) {
        STREAMS.remove(stream)?.close();
        Ok(())
    }

    fn hipStreamSynchronize = hipStreamSynchronize_spt(stream: usize) {
        let stream = get(stream)?;
        graph::check_wait(&stream)?;
        stream.synchronize();
        Ok(())
    }

    fn hipStreamQuery = hipStreamQuery_spt(stream: usize) {
        let stream = get(stream)?;
        graph::check_wait(&stream)?;
        if stream.is_idle() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn hipStreamGetFlags = hipStreamGetFlags_spt(stream: usize, flags: Out<u32>) {
        flags.set(get(stream)?.flags)
    }

    fn hipStreamGetPriority = hipStreamGetPriority_spt(stream: usize, priority: Out<i32>) {
        priority.set(get(stream)?.priority)
    }

    fn hipStreamGetDevice(stream: usize, device: Out<i32>) {
        device.set(get(stream)?.domain()?.device as i32)
    }

    fn hipStreamWaitEvent = hipStreamWaitEvent_spt(stream: usize, event: usize, flags: u32) {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        EVENTS.get(event)?.hold_back(&get(stream)?)
    }

    fn hipLaunchHostFunc = hipLaunchHostFunc_spt(stream: usize, function: Option<HostFunction>, data: usize) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        get(stream)?.submit(move || function(data as *mut c_void))?;
        Ok(())
    }

    fn hipStreamAddCallback = hipStreamAddCallback_spt(
        stream: usize, callback: Option<Callback>, data: usize, flags: u32
    ) {
        let callback = callback.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        get(stream)?.submit(move || callback(stream, 0, data as *mut c_void))?;
        Ok(())
    }

    fn hipStreamWaitValue32(stream: usize, address: usize, value: u32, flags: u32, mask: u32) {
        let comparison = Comparison::from_flags(flags, Comparison::AtLeast)?;
        event::wait_value(&not_recording(stream)?, address, 4, value.into(), mask.into(), comparison)
    }

    fn hipStreamWaitValue64(stream: usize, address: usize, value: u64, flags: u32, mask: u64) {
        event::wait_value(&not_recording(stream)?, address, 8, value, mask, Comparison::from_flags(flags, Comparison::AtLeast)?)
    }

    fn hipStreamWriteValue32(stream: usize, address: usize, value: u32, _flags: u32) {
        event::write_value(&not_recording(stream)?, address, 4, value.into())
    }

    fn hipStreamWriteValue64(stream: usize, address: usize, value: u64, _flags: u32) {
        event::write_value(&not_recording(stream)?, address, 8, value)
    }

    fn hipEventCreate(event: Out<usize>) {
        create_event(event, 0)
    }

    fn hipEventCreateWithFlags(event: Out<usize>, flags: u32) {
        create_event(event, flags)
    }

    fn hipEventDestroy(event: usize) {
        EVENTS.remove(event).map(drop)
    }

    fn hipEventRecord = hipEventRecord_spt(event: usize, stream: usize) {
        let (event, stream) = (EVENTS.get(event)?, get(stream)?);
        if !event.is_of_device(stream.domain()?.device) {
            return Err(Code::INVALID_HANDLE);
        }
        event.record(&stream)
    }

    fn hipEventQuery(event: usize) {
        let event = EVENTS.get(event)?;
        event.check_not_captured()?;
        if event.is_reached() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn hipEventSynchronize(event: usize) {
        let event = EVENTS.get(event)?;
        event.check_not_captured()?;
        event.synchronize();
        Ok(())
    }

    fn hipEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) {
        milliseconds.set(EVENTS.get(start)?.elapsed_ms(&*EVENTS.get(end)?)?)
    }
}
