//! Making, asking and ending communicators; memory; errors in words.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::abi::{CONFIG_MAGIC, Code, CommHandle, Config, NO_COLOR, UniqueId};
use crate::comm::{self, Comm, Live};
use crate::engine::{Command, Exchange};
use crate::group::{self, Making};
use crate::init::{self, CARD_BYTES, Card, Seat};
use crate::{Failure, Library, log, meeting};

/// NCCL's version that `libnccl.so.2` answers, and that of `librccl.so.1`.
const NCCL_VERSION: c_int = 23203;
const RCCL_VERSION: c_int = 23003;

/// Puts a result where the caller wants it.
unsafe fn put<T>(place: *mut T, what: &str, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("the place for {what} is null")));
    }
    // SAFETY: not null; the caller of the C function promises room for it.
    unsafe { place.write(value) };
    Ok(())
}

fn index(number: c_int, what: &str) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::argument(format!("{what} is {number}")))
}

pub unsafe fn version(library: Library, place: *mut c_int) -> Result<(), Failure> {
    let version = if library == Library::Nccl { NCCL_VERSION } else { RCCL_VERSION };
    // SAFETY: the caller's promise.
    unsafe { put(place, "the version", version) }
}

pub unsafe fn unique_id(place: *mut UniqueId) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument("the place for the id is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, "the id", meeting::create()?) }
}

pub unsafe fn ids<'a>(ids: *const UniqueId, len: c_int) -> Result<&'a [UniqueId], Failure> {
    if ids.is_null() || len < 1 {
        return Err(Failure::argument(format!("{len} unique ids at {ids:?}")));
    }
    // SAFETY: the caller's promise: `len` ids.
    Ok(unsafe { std::slice::from_raw_parts(ids, index(len, "the number of ids")?) })
}

/// Whether the caller does not wait.
unsafe fn nonblocking(config: *const Config) -> Result<bool, Failure> {
    if config.is_null() {
        return Ok(false);
    }
    // SAFETY: the caller's promise: at least the first fields, which every version has.
    let config = unsafe { config.read() };
    if config.magic != CONFIG_MAGIC || config.size < size_of::<Config>() {
        return Err(Failure::argument(
            "the configuration was not made with NCCL_CONFIG_INITIALIZER (its magic number or size is wrong)",
        ));
    }
    match config.blocking {
        0 => Ok(true),
        1 | c_int::MIN => Ok(false),
        other => Err(Failure::argument(format!("blocking is {other}; possible: 0 and 1"))),
    }
}

/// Registers a communicator and makes it now or at the end of the group.
unsafe fn begin(
    place: *mut CommHandle,
    comm: Arc<Comm>,
    make: impl FnOnce() -> Result<Live, Failure> + Send + 'static,
) -> Result<(), Failure> {
    let handle = comm::register(comm.clone());
    // SAFETY: the caller's promise.
    unsafe { put(place, "the communicator", handle)? };
    let made = comm.clone();
    let outcome = group::make(Making {
        comm,
        make: Box::new(move || {
            // Set once, here.
            let _ = made.made.set(make());
        }),
    });
    if let Err(failure) = &outcome
        && failure.code != Code::InProgress
    {
        comm::forget(handle);
        // SAFETY: as above.
        unsafe { put(place, "the communicator", std::ptr::null_mut())? };
    }
    outcome
}

pub unsafe fn init_rank(
    library: Library,
    place: *mut CommHandle,
    size: c_int,
    ids: &[UniqueId],
    rank: c_int,
    config: *const Config,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let nonblocking = unsafe { nonblocking(config)? };
    if place.is_null() {
        return Err(Failure::argument("the place for the communicator is null"));
    }
    if size < 1 || rank < 0 || rank >= size {
        return Err(Failure::argument(format!(
            "rank {rank} of {size}: ranks go from 0 to the number of ranks less 1"
        )));
    }
    let device = init::current_device(library)?;
    let (rank, size) = (index(rank, "the rank")?, index(size, "the number of ranks")?);
    let ids = ids.to_vec();
    let comm = Comm::new(library, device, nonblocking);
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, move || init::join(library, device, &ids, rank, size)) }
}

pub unsafe fn init_all(
    library: Library,
    comms: *mut CommHandle,
    size: c_int,
    devices: *const c_int,
) -> Result<(), Failure> {
    if comms.is_null() || size < 1 {
        return Err(Failure::argument(format!("{size} communicators at {comms:?}")));
    }
    let size = index(size, "the number of devices")?;
    let id = meeting::create()?;
    group::start();
    let begun = (0..size).try_for_each(|rank| {
        // SAFETY: the caller's promise: null, or a number for each communicator.
        let number = if devices.is_null() { rank as c_int } else { unsafe { *devices.add(rank) } };
        let device = init::device(library, index(number, "a device")? as u32)?;
        let comm = Comm::new(library, device, false);
        // SAFETY: the caller's promise: room for as many handles.
        unsafe {
            begin(comms.add(rank), comm, move || init::join(library, device, &[id], rank, size))
        }
    });
    if let Err(failure) = &begun {
        group::note(failure);
    }
    group::end()
}

/// Everybody's words, from the engine of the parent.
fn exchange(parent: &Live, members: Vec<usize>, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let (reply, answer) = mpsc::channel();
    parent.shared.tell(Command::Exchange(Exchange { members, own, reply }));
    loop {
        match answer.recv_timeout(Duration::from_millis(20)) {
            Ok(answer) => return answer,
            Err(mpsc::RecvTimeoutError::Timeout)
                if !parent.shared.abort.load(Ordering::Acquire) => {}
            Err(_) => return Err(Failure::usage("the parent communicator was aborted meanwhile")),
        }
    }
}

pub unsafe fn split(
    handle: CommHandle,
    color: c_int,
    key: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<(), Failure> {
    let parent = comm::find(handle)?;
    let live = parent.working()?;
    // SAFETY: the caller's promise.
    let nonblocking = unsafe { nonblocking(config)? };
    if place.is_null() || color < NO_COLOR {
        return Err(Failure::argument(format!(
            "color {color} (0 or more, or -1 for none), place {place:?}"
        )));
    }
    let (rank, size) = (live.rank, live.size);
    let (library, device) = (parent.library, parent.device);
    let comm = Comm::new(library, device, nonblocking);
    let secret = live.secret;
    /// Color, key and card of every rank of the parent.
    type Answers = Vec<(c_int, c_int, Card)>;
    let ask = move || -> Result<(Seat, Answers), Failure> {
        let seat = init::sit(library, device)?;
        let mut own = color.to_le_bytes().to_vec();
        own.extend_from_slice(&key.to_le_bytes());
        own.extend_from_slice(&seat.card.to_bytes());
        let all = exchange(parent.live()?, (0..size).collect(), own)?;
        let word = |bytes: &[u8], from: usize| {
            c_int::from_le_bytes(std::array::from_fn(|i| bytes[from + i]))
        };
        let all = all
            .iter()
            .filter(|bytes| bytes.len() == 8 + CARD_BYTES)
            .map(|bytes| Ok((word(bytes, 0), word(bytes, 4), Card::from_bytes(&bytes[8..])?)))
            .collect::<Result<_, Failure>>()?;
        Ok((seat, all))
    };
    if color == NO_COLOR {
        // SAFETY: the caller's promise.
        unsafe { put(place, "the communicator", std::ptr::null_mut())? };
        // It takes part in the exchange, and gets nothing.
        let made = comm.clone();
        let making = Making {
            comm,
            make: Box::new(move || {
                let nothing = Failure::new(Code::Success, "this rank is in no part of the split");
                let _ = made.made.set(Err(ask().err().unwrap_or(nothing)));
            }),
        };
        return group::make(making);
    }
    let make = move || {
        let (seat, all) = ask()?;
        let mut members: Vec<(c_int, usize, Card)> = all
            .iter()
            .enumerate()
            .filter(|(_, (theirs, ..))| *theirs == color)
            .map(|(rank, &(_, key, card))| (key, rank, card))
            .collect();
        members.sort_by_key(|&(key, rank, _)| (key, rank));
        let own = members.iter().position(|&(_, member, _)| member == rank).unwrap_or(0);
        let cards: Vec<Card> = members.into_iter().map(|(.., card)| card).collect();
        init::start(seat, own, &cards, secret)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

pub unsafe fn shrink(
    handle: CommHandle,
    excluded: *const c_int,
    excluded_len: c_int,
    place: *mut CommHandle,
    config: *const Config,
    _flags: c_int,
) -> Result<(), Failure> {
    let parent = comm::find(handle)?;
    let live = parent.live()?;
    // SAFETY: the caller's promise.
    let nonblocking = unsafe { nonblocking(config)? };
    if place.is_null() || excluded.is_null() || excluded_len < 1 {
        return Err(Failure::argument(
            "shrinking wants a list of ranks to leave out and a place for the result",
        ));
    }
    // SAFETY: the caller's promise: so many ranks.
    let excluded = unsafe {
        std::slice::from_raw_parts(excluded, index(excluded_len, "the number of ranks")?)
    };
    let wrong =
        excluded.iter().find(|&&rank| usize::try_from(rank).is_ok_and(|rank| rank < live.size));
    if wrong.is_none() || excluded.contains(&(live.rank as c_int)) {
        return Err(Failure::argument(format!(
            "rank {} leaves out {excluded:?} of {} ranks: they must be ranks of the communicator, and not the caller",
            live.rank, live.size
        )));
    }
    let members: Vec<usize> =
        (0..live.size).filter(|&rank| !excluded.contains(&(rank as c_int))).collect();
    let (rank, secret) = (live.rank, live.secret);
    let (library, device) = (parent.library, parent.device);
    let comm = Comm::new(library, device, nonblocking);
    let make = move || {
        let seat = init::sit(library, device)?;
        let all = exchange(parent.live()?, members.clone(), seat.card.to_bytes())?;
        let cards =
            all.iter().map(|bytes| Card::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
        let own = members.iter().position(|&member| member == rank).unwrap_or(0);
        init::start(seat, own, &cards, secret)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

pub fn finalize(handle: CommHandle) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let live = comm.working()?;
    comm.finalized.store(true, Ordering::Release);
    if comm.nonblocking {
        return if live.is_idle() {
            Ok(())
        } else {
            Err(Failure::new(Code::InProgress, "work is under way"))
        };
    }
    live.drain()
}

pub fn destroy(handle: CommHandle) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    comm::forget(handle);
    if let Some(Ok(live)) = comm.made.get() {
        live.close();
    }
    Ok(())
}

pub fn abort(handle: CommHandle) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    comm::forget(handle);
    if let Some(Ok(live)) = comm.made.get() {
        live.abort();
    }
    Ok(())
}

pub unsafe fn async_error(handle: CommHandle, place: *mut c_int) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let code = match comm.made.get() {
        None => Code::InProgress,
        Some(Err(failure)) => failure.code,
        Some(Ok(live)) => match live.shared.failure() {
            Some(failure) => failure.code,
            None if comm.finalized.load(Ordering::Acquire) && !live.is_idle() => Code::InProgress,
            None => Code::Success,
        },
    };
    // SAFETY: the caller's promise.
    unsafe { put(place, "the error", code as c_int) }
}

pub unsafe fn count(handle: CommHandle, place: *mut c_int) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(place, "the number of ranks", comm::find(handle)?.live()?.size as c_int) }
}

pub unsafe fn rank(handle: CommHandle, place: *mut c_int) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(place, "the rank", comm::find(handle)?.live()?.rank as c_int) }
}

pub unsafe fn device(handle: CommHandle, place: *mut c_int) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(place, "the device", comm::find(handle)?.device.number as c_int) }
}

/// Handles of registered buffers: memory is looked up at each use, so that registering is only a promise.
static REGISTERED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

pub unsafe fn register(
    handle: CommHandle,
    buffer: *mut c_void,
    bytes: usize,
    place: *mut *mut c_void,
) -> Result<(), Failure> {
    comm::find(handle)?.working()?;
    if buffer.is_null() || bytes == 0 {
        return Err(Failure::argument(format!("{bytes} bytes at {buffer:?} can't be registered")));
    }
    let token: *mut c_void = Box::into_raw(Box::new(0u64)).cast();
    // SAFETY: the caller's promise.
    unsafe { put(place, "the registration", token)? };
    REGISTERED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .push((handle.addr(), token.addr()));
    Ok(())
}

pub fn deregister(handle: CommHandle, token: *mut c_void) -> Result<(), Failure> {
    comm::find(handle)?;
    let mut all = REGISTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let index = all.iter().position(|&known| known == (handle.addr(), token.addr()));
    let index = index
        .ok_or_else(|| Failure::argument("this registration is not one of the communicator's"))?;
    all.swap_remove(index);
    Ok(())
}

pub unsafe fn allocate(
    library: Library,
    place: *mut *mut c_void,
    bytes: usize,
) -> Result<(), Failure> {
    if bytes == 0 {
        return Err(Failure::argument("0 bytes can't be allocated"));
    }
    let driver = init::vendor(library).open()?;
    let (_, context) = driver.current()?;
    let memory = driver.allocate(context, bytes)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, "the memory", std::ptr::with_exposed_provenance_mut(memory)) }
}

pub fn free(library: Library, memory: *mut c_void) -> Result<(), Failure> {
    if memory.is_null() {
        return Ok(());
    }
    let driver = init::vendor(library).open()?;
    let place = driver.locate(memory.addr());
    let place =
        place.ok_or_else(|| Failure::argument(format!("{memory:?} is not device memory")))?;
    driver.free(place.context, memory.addr());
    Ok(())
}

pub fn error_text(code: c_int) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the hetccl developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}

pub fn last_error() -> *const c_char {
    log::last_error()
}
