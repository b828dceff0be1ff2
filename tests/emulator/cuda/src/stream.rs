//! Streams.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::event::{self, Comparison};
use hetccl_emulated_device::stream::{Role, Stream};
use hetccl_emulated_device::{Code, entries, graph};

use crate::context::{self, Context, current};
use crate::entry::{default_is_per_thread, in_host_function};

const LEGACY: usize = 1;
const PER_THREAD: usize = 2;
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

static STREAMS: Table<Stream> = Table::new(3);

thread_local! {
    /// This thread's stream of each context.
    static OWN: RefCell<Vec<(usize, OwnStream)>> = const { RefCell::new(Vec::new()) };
}

/// Ends with its thread.
struct OwnStream(Arc<Stream>);

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The stream with this handle. 0 and the handles below 3 mean a default stream of the current context.
pub(crate) fn get(handle: usize) -> Result<Arc<Stream>, Code> {
    match handle {
        0 if default_is_per_thread() => own(&*current()?),
        0 | LEGACY => Ok(current()?.domain.null.clone()),
        PER_THREAD => own(&*current()?),
        _ => STREAMS.get(handle),
    }
}

/// The stream with this handle, for a call that queues work: it waits while another thread loads code or frees memory in the
/// stream's context, and that waits for streams which wait for values.
pub(crate) fn get_for_work(handle: usize) -> Result<Arc<Stream>, Code> {
    let stream = get(handle)?;
    stream.domain()?.gate();
    Ok(stream)
}

/// The context of the stream with this handle.
pub(crate) fn context_of(handle: usize) -> Result<Arc<Context>, Code> {
    context::with_handle(get(handle)?.domain()?.context)
}

/// Drops the streams of a context.
pub(crate) fn forget(context: usize) {
    STREAMS.remove_all(|stream| stream.domain().is_ok_and(|domain| domain.context == context));
}

fn own(context: &Context) -> Result<Arc<Stream>, Code> {
    OWN.with_borrow_mut(|own| {
        if let Some((_, stream)) = own.iter().find(|(of, _)| *of == context.handle) {
            return Ok(stream.0.clone());
        }
        let stream = context.domain.stream(Role::Blocking, 0, 0);
        own.push((context.handle, OwnStream(stream.clone())));
        Ok(stream)
    })
}

fn create(stream: Out<usize>, flags: u32, priority: i32) -> Result<(), Code> {
    stream.check()?;
    let context = current()?;
    context.domain.gate();
    let role = match flags {
        0 => Role::Blocking,
        NON_BLOCKING => Role::NonBlocking,
        _ => return Err(Code::INVALID_VALUE),
    };
    stream.set(STREAMS.insert(context.domain.stream(role, flags, priority)))
}

/// `CUhostFn`.
type HostFunction = extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
type Callback = extern "C" fn(usize, i32, *mut c_void);

/// `CUstreamBatchMemOpParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryOperation {
    operation: u32,
    address: usize,
    value: u64,
    flags: u32,
    _rest: [u64; 2],
}

fn wait_value(
    stream: usize,
    address: usize,
    bytes: usize,
    value: u64,
    flags: u32,
) -> Result<(), Code> {
    event::wait_value(
        &get(stream)?,
        address,
        bytes,
        value,
        u64::MAX,
        Comparison::from_flags(flags, Comparison::AtLeastCyclic)?,
    )
}

fn write_value(stream: usize, address: usize, bytes: usize, value: u64) -> Result<(), Code> {
    event::write_value(&get(stream)?, address, bytes, value)
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<MemoryOperation>() == 48);
};

entries! {
    fn cuStreamCreate(stream: Out<usize>, flags: u32) {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) {
        create(stream, flags, priority.clamp(-5, 0))
    }

    fn cuStreamDestroy_v2 / cuStreamDestroy(stream: usize) {
        if stream <= PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        STREAMS.remove(stream)?.close();
        Ok(())
    }

    fn cuStreamSynchronize = cuStreamSynchronize_ptsz(stream: usize) {
        let stream = get(stream)?;
        graph::check_wait(&stream)?;
        stream.synchronize();
        Ok(())
    }

    fn cuStreamQuery = cuStreamQuery_ptsz(stream: usize) {
        let stream = get(stream)?;
        graph::check_wait(&stream)?;
        if stream.is_idle() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuStreamGetFlags = cuStreamGetFlags_ptsz(stream: usize, flags: Out<u32>) {
        flags.set(get(stream)?.flags)
    }

    fn cuStreamGetPriority = cuStreamGetPriority_ptsz(stream: usize, priority: Out<i32>) {
        priority.set(get(stream)?.priority)
    }

    fn cuStreamGetId = cuStreamGetId_ptsz(stream: usize, id: Out<u64>) {
        id.set(get(stream)?.number)
    }

    fn cuStreamGetCtx = cuStreamGetCtx_ptsz(stream: usize, context: Out<usize>) {
        context.set(context_of(stream)?.handle)
    }

    fn cuStreamWaitEvent = cuStreamWaitEvent_ptsz(stream: usize, event: usize, flags: u32) {
        let (event, stream) = (crate::event::get(event)?, get(stream)?);
        match flags {
            0 => event.hold_back(&stream),
            EXTERNAL => event.hold_back_external(&stream),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuLaunchHostFunc = cuLaunchHostFunc_ptsz(stream: usize, function: Option<HostFunction>, data: usize) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        get_for_work(stream)?.submit(move || in_host_function(|| function(data as *mut c_void)))?;
        Ok(())
    }

    fn cuStreamAddCallback = cuStreamAddCallback_ptsz(
        stream: usize, callback: Option<Callback>, data: usize, flags: u32
    ) {
        let callback = callback.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        get_for_work(stream)?.submit(move || in_host_function(|| callback(stream, 0, data as *mut c_void)))?;
        Ok(())
    }

    fn cuStreamWaitValue32 / cuStreamWaitValue32_v2 = cuStreamWaitValue32_ptsz(
        stream: usize, address: usize, value: u32, flags: u32
    ) {
        wait_value(stream, address, 4, value.into(), flags)
    }

    fn cuStreamWaitValue64 / cuStreamWaitValue64_v2 = cuStreamWaitValue64_ptsz(
        stream: usize, address: usize, value: u64, flags: u32
    ) {
        wait_value(stream, address, 8, value, flags)
    }

    fn cuStreamWriteValue32 / cuStreamWriteValue32_v2 = cuStreamWriteValue32_ptsz(
        stream: usize, address: usize, value: u32, _flags: u32
    ) {
        write_value(stream, address, 4, value.into())
    }

    fn cuStreamWriteValue64 / cuStreamWriteValue64_v2 = cuStreamWriteValue64_ptsz(
        stream: usize, address: usize, value: u64, _flags: u32
    ) {
        write_value(stream, address, 8, value)
    }

    fn cuStreamBatchMemOp / cuStreamBatchMemOp_v2 = cuStreamBatchMemOp_ptsz(
        stream: usize, count: u32, operations: In<MemoryOperation>, _flags: u32
    ) {
        for index in 0..count as usize {
            let MemoryOperation { operation, address, value, flags, .. } = operations.at(index)?;
            match operation {
                1 => wait_value(stream, address, 4, value & u64::from(u32::MAX), flags)?,
                2 => write_value(stream, address, 4, value & u64::from(u32::MAX))?,
                3 | 6 => {}
                4 => wait_value(stream, address, 8, value, flags)?,
                5 => write_value(stream, address, 8, value)?,
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }
}
