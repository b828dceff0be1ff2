//! Communicators out of others: split, shrunk, grown.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::c_int;
use std::sync::atomic::AtomicBool;

use super::communicator::{begin, done, index, nonblocking, put};
use crate::abi::{Code, CommHandle, Config, NO_COLOR, UniqueId};
use crate::comm::{self, Comm, Live};
use crate::delegate::{self, Kept, calls};
use crate::group::{self, Making};
use crate::init::{self, Joined};
use crate::meeting::{self, Ticket};
use crate::{Failure, Library};

/// `NCCL_SHRINK_ABORT`: what is under way on the parent is given up.
const SHRINK_ABORT: c_int = 1;

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

/// The ranks of each part: color and key of every rank of the parent.
fn colors(ticket: Ticket, color: c_int, key: c_int) -> Result<Vec<(c_int, c_int)>, Failure> {
    let mut own = color.to_le_bytes().to_vec();
    own.extend_from_slice(&key.to_le_bytes());
    let all = ticket.gather(own)?;
    let word = |bytes: &[u8], from: usize| {
        c_int::from_le_bytes(std::array::from_fn(|i| bytes.get(from + i).copied().unwrap_or(0)))
    };
    Ok(all.iter().map(|bytes| (word(bytes, 0), word(bytes, 4))).collect())
}

/// The ranks with a color, by key and then by rank.
fn members(colors: &[(c_int, c_int)], color: c_int) -> Vec<usize> {
    let mut members: Vec<usize> =
        (0..colors.len()).filter(|&rank| colors[rank].0 == color).collect();
    members.sort_by_key(|&rank| (colors[rank].1, rank));
    members
}

unsafe fn split_own(
    handle: CommHandle,
    color: c_int,
    key: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<(), Failure> {
    let parent = comm::find(handle)?;
    let live = parent.parent()?;
    // SAFETY: the caller's promise.
    let nonblocking = unsafe { nonblocking(config)? };
    if place.is_null() || color < NO_COLOR {
        return Err(Failure::argument(format!(
            "color {color} (0 or more, or -1 for none), place {place:?}"
        )));
    }
    let (library, device) = (parent.library, parent.device);
    let comm = Comm::new(library, device, nonblocking);
    let ticket = live.meeting.ticket();
    if color == NO_COLOR {
        // SAFETY: the caller's promise.
        unsafe { put(place, "the communicator", std::ptr::null_mut())? };
        // It takes part in the exchange, and gets nothing.
        let made = comm.clone();
        let making = Making {
            comm,
            make: Box::new(move || {
                let nothing = Failure::new(Code::Success, "this rank is in no part of the split");
                let failure = colors(ticket, color, key).err().unwrap_or(nothing);
                let _ = made.made.set(Err(failure));
            }),
        };
        return group::make(making);
    }
    // SAFETY: the caller's promise.
    let config = unsafe { Kept::copy(config) };
    let make = move |abandoned: &AtomicBool| {
        let all = colors(ticket, color, key)?;
        let live = parent.live()?;
        part(live, library, device, &members(&all, color), config, abandoned)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

/// A communicator of some of the ranks of another.
fn part(
    live: &Live,
    library: Library,
    device: comm::Device,
    members: &[usize],
    config: Option<Kept>,
    abandoned: &AtomicBool,
) -> Result<Joined, Failure> {
    let own = members.iter().position(|&member| member == live.rank).unwrap_or(0);
    let met = live.meeting.split(members)?;
    init::sit(library, device)?.take(own, met, config, abandoned)
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
    unsafe { shrink_own(handle, excluded, excluded_len, place, config, flags) }.map(done)
}

unsafe fn shrink_own(
    handle: CommHandle,
    excluded: *const c_int,
    excluded_len: c_int,
    place: *mut CommHandle,
    config: *const Config,
    flags: c_int,
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
    if flags & !SHRINK_ABORT != 0 {
        return Err(Failure::argument(format!(
            "the flags of a shrink are {flags}; possible: 0, and 1 (abort what is under way)"
        )));
    }
    // SAFETY: the caller's promise: so many ranks.
    let excluded = unsafe {
        std::slice::from_raw_parts(excluded, index(excluded_len, "the number of ranks")?)
    };
    let known = |rank: &c_int| usize::try_from(*rank).is_ok_and(|rank| rank < live.size);
    if !excluded.iter().all(known) || excluded.contains(&(live.rank as c_int)) {
        return Err(Failure::argument(format!(
            "rank {} leaves out {excluded:?} of {} ranks: they must be ranks of the communicator, and not the caller",
            live.rank, live.size
        )));
    }
    if flags == SHRINK_ABORT {
        live.stop();
    }
    let members: Vec<usize> =
        (0..live.size).filter(|&rank| !excluded.contains(&(rank as c_int))).collect();
    let (library, device) = (parent.library, parent.device);
    let comm = Comm::new(library, device, nonblocking);
    // SAFETY: the caller's promise.
    let config = unsafe { Kept::copy(config) };
    let make = move |abandoned: &AtomicBool| {
        part(parent.live()?, library, device, &members, config, abandoned)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

/// An id with which new ranks join the ranks of a communicator.
pub unsafe fn grow_id(handle: CommHandle, place: *mut UniqueId) -> Result<(), Failure> {
    comm::find(handle)?.parent()?;
    if place.is_null() {
        return Err(Failure::argument("the place for the id is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, "the id", meeting::create()?) }
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
    // SAFETY: the caller's promise: null, or an id.
    let id_of_another = !id.is_null() && unsafe { !meeting::is_own(&*id) };
    // A new rank has no communicator yet; its id says whose it is.
    if vendor.is_some()
        || (handle.is_null() && id_of_another && calls::has(library, c"ncclCommGrow"))
    {
        let vendor = vendor.unwrap_or(std::ptr::null_mut());
        // SAFETY: the caller's promise.
        return unsafe { calls::grow(library, vendor, size, id, rank, place, config) };
    }
    // SAFETY: the caller's promise.
    let id = (!id.is_null()).then(|| unsafe { *id });
    // SAFETY: the caller's promise.
    unsafe {
        match handle.is_null() {
            true => grow_by_oneself(library, size, id, rank, place, config),
            false => grow_own(handle, size, id, rank, place, config),
        }
    }
    .map(done)
}

/// A new rank.
unsafe fn grow_by_oneself(
    library: Library,
    size: c_int,
    id: Option<UniqueId>,
    rank: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<(), Failure> {
    let id = id.ok_or_else(|| {
        Failure::argument("a new rank has no communicator, and needs an id of ncclCommGetUniqueId")
    })?;
    // SAFETY: the caller's promise.
    unsafe { super::communicator::init_rank(library, place, size, &[id], rank, config) }
}

/// A rank of the communicator that grows, whose number stays.
unsafe fn grow_own(
    handle: CommHandle,
    size: c_int,
    id: Option<UniqueId>,
    rank: c_int,
    place: *mut CommHandle,
    config: *const Config,
) -> Result<(), Failure> {
    let parent = comm::find(handle)?;
    let live = parent.working()?;
    // SAFETY: the caller's promise.
    let nonblocking = unsafe { nonblocking(config)? };
    let wanted = index(size, "the number of ranks")?;
    if place.is_null() || wanted <= live.size || rank != -1 {
        return Err(Failure::argument(format!(
            "growing {} ranks to {size}, as rank {rank}, into {place:?}: there must be more ranks, those that are there say \
             rank -1, and a place is needed",
            live.size
        )));
    }
    let ticket = live.meeting.ticket();
    let (library, device) = (parent.library, parent.device);
    let comm = Comm::new(library, device, nonblocking);
    // SAFETY: the caller's promise.
    let config = unsafe { Kept::copy(config) };
    let own = live.rank;
    let make = move |abandoned: &AtomicBool| {
        let all = ticket.gather(id.map_or_else(Vec::new, |id| id.bytes.to_vec()))?;
        let mut ids = all.iter().filter_map(|bytes| bytes.as_slice().try_into().ok());
        let bytes = ids.next().ok_or_else(|| {
            Failure::argument(
                "no rank of the communicator has an id: the one that called ncclCommGetUniqueId hands it to ncclCommGrow",
            )
        })?;
        init::join(library, device, &[UniqueId { bytes }], (own, wanted), config, abandoned)
    };
    // SAFETY: the caller's promise.
    unsafe { begin(place, comm, make) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_by_key_and_then_by_rank() {
        let all = [(0, 5), (1, 0), (0, 2), (0, 5), (-1, 0)];
        assert_eq!(members(&all, 0), [2, 0, 3]);
        assert_eq!(members(&all, 1), [1]);
    }
}
