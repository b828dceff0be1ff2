//! Making, asking and ending communicators; errors in words.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{CONFIG_MAGIC, Code, CommHandle, Config, Properties, UniqueId};
use crate::comm::{self, Comm};
use crate::delegate::{self, Kept, calls};
use crate::group::{self, Making};
use crate::init::{self, Joined};
use crate::{Failure, Library, log, meeting, settings};

/// NCCL's version that `libnccl.so.2` answers, and that of `librccl.so.1`.
const NCCL_VERSION: c_int = 23203;
const RCCL_VERSION: c_int = 23003;

/// Puts a result where the caller wants it.
pub(super) unsafe fn put<T>(place: *mut T, what: &str, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("the place for {what} is null")));
    }
    // SAFETY: not null; the caller of the C function promises room for it.
    unsafe { place.write(value) };
    Ok(())
}

pub(super) fn index(number: c_int, what: &str) -> Result<usize, Failure> {
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
pub(super) unsafe fn nonblocking(config: *const Config) -> Result<bool, Failure> {
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

/// Registers a communicator and makes it now or at the end of the group. `make` may end
/// early when its flag becomes true.
pub(super) unsafe fn begin(
    place: *mut CommHandle,
    comm: Arc<Comm>,
    make: impl FnOnce(&AtomicBool) -> Result<Joined, Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (number, handle) = comm::register(comm.clone());
    // SAFETY: the caller's promise.
    unsafe { put(place, "the communicator", number)? };
    let made = comm.clone();
    let address = number.addr();
    let outcome = group::make(Making {
        comm,
        make: Box::new(move || {
            let joined = make(&made.abandoned);
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
        begin(place, comm, move |abandoned| {
            init::join(library, device, &ids, (rank, size), config, abandoned)
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
            begin(comms.add(rank), comm, move |abandoned| {
                init::join(library, device, &[id], (rank, size), None, abandoned)
            })
        }
    });
    if let Err(failure) = &begun {
        group::note(failure);
    }
    group::end()
}

/// The code of what hetccl has done itself.
pub(super) fn done(_: ()) -> c_int {
    Code::Success as c_int
}

pub fn finalize(handle: CommHandle) -> Result<(), Failure> {
    if handle.is_null() {
        // As NCCL has it, here and in the next ones.
        return Ok(());
    }
    let comm = comm::find(handle)?;
    if comm.revoked.load(Ordering::Acquire) {
        return Err(Failure::usage("a revoked communicator can't be finalized: destroy it"));
    }
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
    comm.abandoned.store(true, Ordering::Release);
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
    comm.abandoned.store(true, Ordering::Release);
    if let Some(Ok(live)) = comm.made.get() {
        live.abort();
    }
    Ok(done(()))
}

/// Gives up what is under way, as all ranks do; the ranks stay in touch, so that they can split and shrink.
pub fn revoke(handle: CommHandle, flags: c_int) -> Result<(), Failure> {
    if handle.is_null() {
        return Ok(());
    }
    let comm = comm::find(handle)?;
    let live = comm.live()?;
    if flags != 0 {
        return Err(Failure::argument(format!(
            "the flags of a revocation are {flags}; possible: 0"
        )));
    }
    comm.revoked.store(true, Ordering::Release);
    live.stop();
    Ok(())
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
        // What was given up on purpose is no error.
        Some(Ok(_)) if comm.revoked.load(Ordering::Acquire) => Code::Success,
        Some(Ok(live)) => match live.settled_failure() {
            Some(failure) => {
                log::keep(&failure.text);
                failure.code
            }
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
        one_sided: true,
    };
    // SAFETY: as above.
    unsafe { place.write(properties) };
    Ok(())
}
