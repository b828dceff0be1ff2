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

use crate::abi::{CONFIG_MAGIC, Code, CommHandle, Config, NO_COLOR, Properties, UniqueId};
use crate::comm::{self, Comm, Live};
use crate::delegate::{self, Kept, calls};
use crate::engine::{Command, Exchange};
use crate::group::{self, Making};
use crate::init::{self, CARD_BYTES, Card, Joined, Seat};
use crate::{Failure, Library, log, meeting, settings};

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
    // It overrules the configuration, as in NCCL.
    let setting = match settings::variable("NCCL_COMM_BLOCKING").as_deref() {
        Some("0") => Some(true),
        Some("1") => Some(false),
        _ => None,
    };
    if config.is_null() {
        return Ok(setting.unwrap_or(false));
    }
    // SAFETY: the caller's promise: at least the first fields, which every version has.
    let config = unsafe { config.read() };
    if config.magic != CONFIG_MAGIC || config.size < size_of::<Config>() {
        return Err(Failure::argument(
            "the configuration was not made with NCCL_CONFIG_INITIALIZER (its magic number or size is wrong)",
        ));
    }
    if let Some(setting) = setting {
        return Ok(setting);
    }
    match config.blocking {
        0 => Ok(true),
        1 | c_int::MIN => Ok(false),
        other => Err(Failure::argument(format!("blocking is {other}; possible: 0 and 1"))),
    }
}

/// Registers a communicator and makes it now or at the end of the group. `make` is told whether it is still wanted.
unsafe fn begin(
    place: *mut CommHandle,
    comm: Arc<Comm>,
    make: impl FnOnce(&dyn Fn() -> bool) -> Result<Joined, Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (number, handle) = comm::register(comm.clone());
    // SAFETY: the caller's promise.
    unsafe { put(place, "the communicator", number)? };
    let made = comm.clone();
    let address = number.addr();
    let outcome = group::make(Making {
        comm,
        make: Box::new(move || {
            let joined = make(&|| comm::is_known(address));
            // Set once, here.
            let _ = made.made.set(match joined {
                Ok(Joined::Own(live)) => Ok(*live),
                Ok(Joined::Vendor(comm)) => {
                    handle.hand_on(comm);
                    comm::forget_number(address);
                    Err(Failure::new(Code::Success, "calls go to the vendor's library"))
                }
                Err(failure) => {
                    // Nobody waits for the failure of a nonblocking call: it is asked for later.
                    if made.nonblocking {
                        log::failed("ncclCommInitRank", &failure.text);
                    }
                    Err(failure)
                }
            });
        }),
    });
    if let Err(failure) = &outcome
        && failure.code != Code::InProgress
    {
        comm::forget(number);
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
    unsafe {
        let config = Kept::copy(config);
        begin(place, comm, move |wanted| {
            init::join(library, device, &ids, (rank, size), config, wanted)
        })
    }
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
            begin(comms.add(rank), comm, move |wanted| {
                init::join(library, device, &[id], (rank, size), None, wanted)
            })
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
    library: Library,
    handle: CommHandle,
    color: c_int,
    key: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<c_int, Failure> {
    if let Some(vendor) = delegate::vendor_comm(handle) {
        // SAFETY: the caller's promise.
        return unsafe { calls::split(library, vendor, color, key, place, config) };
    }
    // SAFETY: the caller's promise.
    unsafe { split_own(handle, color, key, place, config) }.map(done)
}

/// The code of what hetccl has done itself.
fn done(_: ()) -> c_int {
    Code::Success as c_int
}

unsafe fn split_own(
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
    let asked = parent.clone();
    let ask = move || -> Result<(Seat, Answers), Failure> {
        let seat = init::sit(library, device)?;
        let mut own = color.to_le_bytes().to_vec();
        own.extend_from_slice(&key.to_le_bytes());
        own.extend_from_slice(&seat.card.to_bytes());
        let all = exchange(asked.live()?, (0..size).collect(), own)?;
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
    // SAFETY: the caller's promise.
    let config = unsafe { Kept::copy(config) };
    let lent = parent.clone();
    let make = move |wanted: &dyn Fn() -> bool| {
        let (seat, all) = ask()?;
        let mut members: Vec<(c_int, usize, Card)> = all
            .iter()
            .enumerate()
            .filter(|(_, (theirs, ..))| *theirs == color)
            .map(|(rank, &(_, key, card))| (key, rank, card))
            .collect();
        members.sort_by_key(|&(key, rank, _)| (key, rank));
        let own = members.iter().position(|&(_, member, _)| member == rank).unwrap_or(0);
        let ranks: Vec<usize> = members.iter().map(|&(_, member, _)| member).collect();
        let cards: Vec<Card> = members.into_iter().map(|(.., card)| card).collect();
        let gather = |own| exchange(lent.live()?, ranks.clone(), own);
        let agreed = seat.agree((own, &cards), &gather)?;
        seat.take((own, &cards), agreed, secret, config, wanted)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

pub unsafe fn shrink(
    library: Library,
    handle: CommHandle,
    excluded: *const c_int,
    excluded_len: c_int,
    place: *mut CommHandle,
    config: *const Config,
    flags: c_int,
) -> Result<c_int, Failure> {
    if let Some(vendor) = delegate::vendor_comm(handle) {
        // SAFETY: the caller's promise.
        return unsafe {
            calls::shrink(library, vendor, excluded, excluded_len, place, config, flags)
        };
    }
    // SAFETY: the caller's promise.
    unsafe { shrink_own(handle, excluded, excluded_len, place, config) }.map(done)
}

pub unsafe fn grow(
    library: Library,
    handle: CommHandle,
    size: c_int,
    id: *const UniqueId,
    rank: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<c_int, Failure> {
    let vendor = delegate::vendor_comm(handle);
    // A new rank has no communicator yet; its id is the vendor's own.
    if vendor.is_some() || (handle.is_null() && calls::has(library, c"ncclCommGrow")) {
        let vendor = vendor.unwrap_or(std::ptr::null_mut());
        // SAFETY: the caller's promise.
        return unsafe { calls::grow(library, vendor, size, id, rank, place, config) };
    }
    comm::find(handle)?;
    Err(Failure::usage(
        "hetccl's communicators can't grow: make a larger one with ncclGetUniqueId and ncclCommInitRank on all ranks",
    ))
}

unsafe fn shrink_own(
    handle: CommHandle,
    excluded: *const c_int,
    excluded_len: c_int,
    place: *mut CommHandle,
    config: *const Config,
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
    // SAFETY: the caller's promise.
    let config = unsafe { Kept::copy(config) };
    let make = move |wanted: &dyn Fn() -> bool| {
        let seat = init::sit(library, device)?;
        let all = exchange(parent.live()?, members.clone(), seat.card.to_bytes())?;
        let cards =
            all.iter().map(|bytes| Card::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
        let own = members.iter().position(|&member| member == rank).unwrap_or(0);
        let gather = |own| exchange(parent.live()?, members.clone(), own);
        let agreed = seat.agree((own, &cards), &gather)?;
        seat.take((own, &cards), agreed, secret, config, wanted)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

pub fn finalize(handle: CommHandle) -> Result<(), Failure> {
    if handle.is_null() {
        // As NCCL has it, here and in the next ones.
        return Ok(());
    }
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

pub fn destroy(library: Library, handle: CommHandle) -> Result<c_int, Failure> {
    if handle.is_null() {
        return Ok(done(()));
    }
    if let Some(code) = calls::end(library, handle, false) {
        return Ok(code);
    }
    let comm = comm::find(handle)?;
    comm::forget(handle);
    if let Some(Ok(live)) = comm.made.get() {
        live.close();
    }
    Ok(done(()))
}

pub fn abort(library: Library, handle: CommHandle) -> Result<c_int, Failure> {
    if handle.is_null() {
        return Ok(done(()));
    }
    if let Some(code) = calls::end(library, handle, true) {
        return Ok(code);
    }
    let comm = comm::find(handle)?;
    comm::forget(handle);
    if let Some(Ok(live)) = comm.made.get() {
        live.abort();
    }
    Ok(done(()))
}

pub fn revoke(handle: CommHandle) -> Result<(), Failure> {
    if handle.is_null() {
        return Ok(());
    }
    comm::find(handle)?;
    Err(Failure::usage(
        "hetccl's communicators can't be revoked: call ncclCommAbort, and make a new one with ncclCommInitRank",
    ))
}

pub unsafe fn async_error(handle: CommHandle, place: *mut c_int) -> Result<(), Failure> {
    if delegate::is_pending(handle) {
        // SAFETY: the caller's promise.
        return unsafe { put(place, "the error", Code::InProgress as c_int) };
    }
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
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    if let Some(code) = unsafe { calls::allocate(library, place, bytes) } {
        return Ok(code);
    }
    if bytes == 0 {
        return Err(Failure::argument("0 bytes can't be allocated"));
    }
    let driver = init::vendor(library).open()?;
    let (_, context) = driver.current()?;
    let memory = driver.allocate(context, bytes)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, "the memory", std::ptr::with_exposed_provenance_mut(memory)) }.map(done)
}

pub fn free(library: Library, memory: *mut c_void) -> Result<c_int, Failure> {
    if memory.is_null() {
        return Ok(done(()));
    }
    if let Some(code) = calls::free(library, memory) {
        return Ok(code);
    }
    let driver = init::vendor(library).open()?;
    let place = driver.locate(memory.addr());
    let place =
        place.ok_or_else(|| Failure::argument(format!("{memory:?} is not device memory")))?;
    driver.free(place.context, memory.addr());
    Ok(done(()))
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
        8 => c"timeout",
        _ => c"unknown result code",
    }
}

pub fn last_error(library: Library, handle: CommHandle) -> *const c_char {
    delegate::last_error(library, handle).unwrap_or_else(log::last_error)
}

pub unsafe fn memory_statistics(
    handle: CommHandle,
    which: c_int,
    place: *mut u64,
) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let all = comm.live()?.device_bytes.load(Ordering::Relaxed) as u64;
    match which {
        // Memory that could be suspended, and whether it is.
        // SAFETY: the caller's promise.
        0 | 1 => unsafe { put(place, "the statistic", 0) },
        // Memory that could not, and all.
        // SAFETY: the caller's promise.
        2 | 3 => unsafe { put(place, "the statistic", all) },
        _ => Err(Failure::argument(format!("{which} is no statistic; they go from 0 to 3"))),
    }
}

pub unsafe fn properties(handle: CommHandle, place: *mut Properties) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let live = comm.live()?;
    if place.is_null() {
        return Err(Failure::argument("the place for the properties is null"));
    }
    // SAFETY: the caller's promise: at least the first three fields.
    let (size, magic, version) = unsafe { ((*place).size, (*place).magic, (*place).version) };
    if magic != CONFIG_MAGIC || size < size_of::<Properties>() {
        return Err(Failure::argument(
            "the properties were not made with NCCL_COMM_PROPERTIES_INITIALIZER (their magic number or size is wrong)",
        ));
    }
    // SAFETY: the caller's promise: `size` bytes. What later versions add says "no" when it is 0.
    unsafe { place.cast::<u8>().write_bytes(0, size) };
    let properties = Properties {
        size,
        magic,
        version,
        rank: live.rank as c_int,
        ranks: live.size as c_int,
        device: comm.device.number as c_int,
        management_device: -1,
        device_interface: false,
        multimem: false,
        network: 0,
        lsa_teams: 0,
        one_sided: false,
    };
    // SAFETY: as above.
    unsafe { place.write(properties) };
    Ok(())
}
