//! Events.

use std::sync::Arc;
use std::time::Duration;

use hetccl_emulated_device::abi::{In, Out, Table};
use hetccl_emulated_device::process::{HANDLE_BYTES, Handle};
use hetccl_emulated_device::signal::{Pool, Signal};
use hetccl_emulated_device::{Code, entries};

use crate::device::check_context;

const IPC: u32 = 2;

static POOLS: Table<EventPool> = Table::new(2);
static EVENTS: Table<Signal> = Table::new(3);

#[derive(Debug)]
struct EventPool {
    pool: Arc<Pool>,
    flags: u32,
}

/// `ze_event_pool_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolDescription {
    structure: u32,
    next: usize,
    flags: u32,
    count: u32,
}

/// `ze_event_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventDescription {
    structure: u32,
    next: usize,
    index: u32,
    signal: u32,
    wait: u32,
}

/// `ze_ipc_event_pool_handle_t`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Opaque([u8; HANDLE_BYTES]);

/// The event with this handle.
pub(crate) fn get(handle: usize) -> Result<Signal, Code> {
    Ok((*EVENTS.get(handle)?).clone())
}

/// What to wait for before a command.
pub(crate) fn get_all(count: u32, events: In<usize>) -> Result<Vec<Signal>, Code> {
    (0..count as usize).map(|index| get(events.at(index)?)).collect()
}

/// A time limit in nanoseconds; the largest number means none.
pub(crate) fn limit(timeout_ns: u64) -> Duration {
    Duration::from_nanos(timeout_ns)
}

/// The sizes of the headers.
const _: () = {
    assert!(size_of::<PoolDescription>() == 24);
    assert!(size_of::<EventDescription>() == 32);
};

entries! {
    fn zeEventPoolCreate(
        context: usize, description: In<PoolDescription>, _count: u32, _devices: In<usize>, pool: Out<usize>
    ) {
        check_context(context)?;
        pool.check()?;
        let PoolDescription { flags, count, .. } = description.get()?;
        pool.set(POOLS.insert(Arc::new(EventPool { pool: Pool::new(count as usize)?, flags })))
    }

    fn zeEventPoolDestroy(pool: usize) {
        POOLS.remove(pool).map(drop)
    }

    fn zeEventPoolGetIpcHandle(pool: usize, handle: Out<Opaque>) {
        let pool = POOLS.get(pool)?;
        if pool.flags & IPC == 0 {
            return Err(Code::INVALID_VALUE);
        }
        handle.set(Opaque(pool.pool.handle().encode()))
    }

    fn zeEventPoolOpenIpcHandle(context: usize, handle: Opaque, pool: Out<usize>) {
        check_context(context)?;
        pool.check()?;
        let opened = Pool::open(Handle::decode(&handle.0)?)?;
        pool.set(POOLS.insert(Arc::new(EventPool { pool: opened, flags: 0 })))
    }

    fn zeEventPoolCloseIpcHandle(pool: usize) {
        POOLS.remove(pool).map(drop)
    }

    fn zeEventCreate(pool: usize, description: In<EventDescription>, event: Out<usize>) {
        event.check()?;
        let signal = POOLS.get(pool)?.pool.signal(description.get()?.index as usize)?;
        event.set(EVENTS.insert(Arc::new(signal)))
    }

    fn zeEventDestroy(event: usize) {
        EVENTS.remove(event).map(drop)
    }

    fn zeEventHostSignal(event: usize) {
        get(event)?.set(true);
        Ok(())
    }

    fn zeEventHostReset(event: usize) {
        get(event)?.set(false);
        Ok(())
    }

    fn zeEventQueryStatus(event: usize) {
        if get(event)?.is_set() { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn zeEventHostSynchronize(event: usize, timeout_ns: u64) {
        if get(event)?.wait_for(limit(timeout_ns)) { Ok(()) } else { Err(Code::NOT_READY) }
    }
}
