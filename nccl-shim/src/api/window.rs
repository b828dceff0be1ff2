//! Windows, puts and signals.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use super::collective::{bytes_at, noted, rank};
use super::communicator::{index, put};
use crate::abi::{CommHandle, Element, StreamHandle, WaitDescription};
use crate::comm;
use crate::engine::{Command, Window};
use crate::operation::{PutWork, Signal, Work};
use crate::{Failure, group};

/// `NCCL_WIN_COLL_SYMMETRIC`: the same offsets on all ranks, which hetccl does not need.
const SYMMETRIC: c_int = 1;

/// Windows of all communicators: the communicator, and the window's number there. The place here is what a program's handle
/// says, and is never given again.
static WINDOWS: Mutex<Vec<Option<(usize, usize)>>> = Mutex::new(Vec::new());

fn windows() -> std::sync::MutexGuard<'static, Vec<Option<(usize, usize)>>> {
    WINDOWS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The place of a handle. Handles are odd numbers, which no pointers of a vendor's library are.
fn place_of(window: *mut c_void) -> usize {
    window.addr() / 2
}

/// The window's number in its communicator.
fn number(handle: CommHandle, window: *mut c_void) -> Result<usize, Failure> {
    if window.is_null() {
        return Err(Failure::argument("the window is null"));
    }
    let known = windows().get(place_of(window).wrapping_sub(1)).copied().flatten();
    match known {
        Some((comm, number)) if comm == handle.addr() && window.addr() % 2 == 1 => Ok(number),
        _ => Err(Failure::argument("the window is none of this communicator's, or deregistered")),
    }
}

/// All ranks register their windows in the same order: the n-th of each are one window.
pub unsafe fn register(
    handle: CommHandle,
    buffer: *mut c_void,
    bytes: usize,
    place: *mut *mut c_void,
    flags: c_int,
) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let live = comm.working()?;
    if buffer.is_null() || bytes == 0 || place.is_null() {
        return Err(Failure::argument(format!(
            "a window of {bytes} bytes at {buffer:?}, whose handle goes to {place:?}"
        )));
    }
    if flags & !SYMMETRIC != 0 {
        return Err(Failure::argument(format!(
            "the flags of a window are {flags}; possible: 0, and 1 (NCCL_WIN_COLL_SYMMETRIC)"
        )));
    }
    let window = Window { address: buffer.expose_provenance(), len_bytes: bytes };
    let number = {
        let mut own = live.shared.windows();
        own.push(Some(window));
        own.len() - 1
    };
    live.shared.tell(Command::Listen);
    let mut all = windows();
    all.push(Some((handle.addr(), number)));
    let token = std::ptr::without_provenance_mut(2 * all.len() + 1);
    // SAFETY: the caller's promise.
    unsafe { put(place, "the window", token) }
}

pub fn deregister(handle: CommHandle, window: *mut c_void) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    if window.is_null() {
        // As NCCL has it.
        return Ok(());
    }
    let number = number(handle, window)?;
    if let Ok(live) = comm.live()
        && let Some(own) = live.shared.windows().get_mut(number)
    {
        *own = None;
    }
    if let Some(entry) = windows().get_mut(place_of(window) - 1) {
        *entry = None;
    }
    Ok(())
}

pub unsafe fn user_pointer(
    handle: CommHandle,
    window: *mut c_void,
    place: *mut *mut c_void,
) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let number = number(handle, window)?;
    let address = comm.live()?.shared.windows().get(number).copied().flatten();
    let address = address.map_or(0, |window| window.address);
    // SAFETY: the caller's promise.
    unsafe { put(place, "the pointer", std::ptr::with_exposed_provenance_mut(address)) }
}

/// A signal of a program's numbers.
fn signal_of(peer: usize, signal: c_int, context: c_int) -> Result<Signal, Failure> {
    let number = |number: c_int, what: &str| {
        u32::try_from(number).map_err(|_| Failure::argument(format!("{what} is {number}")))
    };
    Ok(Signal {
        peer,
        index: number(signal, "the signal's index")?,
        context: number(context, "the context")?,
    })
}

fn no_flags(flags: u32) -> Result<(), Failure> {
    match flags {
        0 => Ok(()),
        _ => Err(Failure::argument(format!("the flags are {flags}; possible: 0"))),
    }
}

pub fn put_signal(
    buffer: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    window: *mut c_void,
    offset_bytes: usize,
    signal: c_int,
    context: c_int,
    flags: u32,
    handle: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    noted(|| {
        let comm = comm::find(handle)?;
        let live = comm.working()?;
        no_flags(flags)?;
        let element = Element::from_number(datatype)?;
        let peer = rank(peer, live.size, "the peer")?;
        let signal = signal_of(peer, signal, context)?;
        let window = number(handle, window)?;
        let address = buffer.expose_provenance();
        let len_bytes = bytes_at(address, count, element, offset_bytes)?;
        let work = PutWork { peer, address, len_bytes, window, offset_bytes, signal };
        group::add(comm, stream.expose_provenance(), Some(Work::Put(work)))
    })
}

pub fn signal(
    peer: c_int,
    signal: c_int,
    context: c_int,
    flags: u32,
    handle: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    noted(|| {
        let comm = comm::find(handle)?;
        let live = comm.working()?;
        no_flags(flags)?;
        let peer = rank(peer, live.size, "the peer")?;
        let signal = signal_of(peer, signal, context)?;
        let work = PutWork { peer, address: 0, len_bytes: 0, window: 0, offset_bytes: 0, signal };
        group::add(comm, stream.expose_provenance(), Some(Work::Put(work)))
    })
}

pub unsafe fn wait_signals(
    len: c_int,
    descriptions: *const WaitDescription,
    handle: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    noted(|| {
        let comm = comm::find(handle)?;
        let live = comm.working()?;
        let len = index(len, "the number of descriptions")?;
        if len == 0 || descriptions.is_null() {
            return Err(Failure::argument(format!("{len} descriptions at {descriptions:?}")));
        }
        // SAFETY: the caller's promise: so many descriptions.
        let descriptions = unsafe { std::slice::from_raw_parts(descriptions, len) };
        let works = descriptions.iter().map(|description| {
            let [count, peer, signal, context] = description.numbers;
            let count = index(count, "the number of signals")? as u64;
            let peer = rank(peer, live.size, "the peer")?;
            Ok(Work::Signals(signal_of(peer, signal, context)?, count))
        });
        let works = works.collect::<Result<Vec<_>, Failure>>()?;
        group::add_all(comm.clone(), stream.expose_provenance(), works)
    })
}
