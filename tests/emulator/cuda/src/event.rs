//! Events.

use std::sync::Arc;

use hetccl_emulated_device::abi::{Out, Table};
use hetccl_emulated_device::event::Event;
use hetccl_emulated_device::{Code, entries};

use crate::context::current;
use crate::stream;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const ALL_FLAGS: u32 = 7;
/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

static EVENTS: Table<Event> = Table::new(4);

/// The event with this handle.
pub(crate) fn get(handle: usize) -> Result<Arc<Event>, Code> {
    EVENTS.get(handle)
}

/// Takes in an event of another process.
pub(crate) fn insert(event: Arc<Event>) -> usize {
    EVENTS.insert(event)
}

/// Drops the events of a context.
pub(crate) fn forget(context: usize) {
    EVENTS.remove_all(|event| event.context == context);
}

fn record(event: usize, stream: usize, flags: u32) -> Result<(), Code> {
    let (event, stream) = (get(event)?, stream::get_for_work(stream)?);
    if event.context != stream.domain()?.context {
        return Err(Code::INVALID_HANDLE);
    }
    match flags {
        0 => event.record(&stream),
        EXTERNAL => event.record_external(&stream),
        _ => Err(Code::INVALID_VALUE),
    }
}

entries! {
    fn cuEventCreate(event: Out<usize>, flags: u32) {
        event.check()?;
        let context = current()?;
        context.domain.gate();
        let (timing, shared) = (flags & DISABLE_TIMING == 0, flags & INTERPROCESS != 0);
        if flags & !ALL_FLAGS != 0 || shared && timing {
            return Err(Code::INVALID_VALUE);
        }
        event.set(EVENTS.insert(Event::new(flags, timing, shared, context.device, context.handle)?))
    }

    fn cuEventDestroy_v2 / cuEventDestroy(event: usize) {
        EVENTS.remove(event).map(drop)
    }

    fn cuEventRecord = cuEventRecord_ptsz(event: usize, stream: usize) {
        record(event, stream, 0)
    }

    fn cuEventRecordWithFlags = cuEventRecordWithFlags_ptsz(event: usize, stream: usize, flags: u32) {
        record(event, stream, flags)
    }

    fn cuEventQuery(event: usize) {
        let event = get(event)?;
        event.check_not_captured()?;
        if event.is_reached() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuEventSynchronize(event: usize) {
        let event = get(event)?;
        event.check_not_captured()?;
        event.synchronize();
        Ok(())
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) {
        milliseconds.set(get(start)?.elapsed_ms(&*get(end)?)?)
    }
}
