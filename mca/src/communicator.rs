//! Communicators: who is in them, and their topology.

use std::ptr::NonNull;

use hetccl_core::{Group, Rank};

use crate::sys;

/// A process's name for the life of the job: job number in the upper half, number in the job in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName(pub u64);

impl ProcessName {
    /// The job that the process was started in.
    pub const fn job(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A communicator that Open MPI handed over; valid as long as Open MPI keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunicatorRef(NonNull<sys::ompi_communicator_t>);

// SAFETY: what is read of a communicator does not change between its creation and its end.
unsafe impl Send for CommunicatorRef {}

/// Neighbours in MPI's order; `None` is MPI_PROC_NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Ranks that this one receives from.
    pub sources: Vec<Option<Rank>>,
    /// Ranks that this one sends to.
    pub destinations: Vec<Option<Rank>>,
    /// The neighbours are pairs (minus, plus) of a cartesian grid.
    pub cartesian: bool,
}

impl CommunicatorRef {
    /// Wraps a communicator.
    ///
    /// # Safety
    /// `raw` is a live communicator and stays so while this value and its copies are used.
    pub unsafe fn from_raw(raw: *mut sys::ompi_communicator_t) -> CommunicatorRef {
        CommunicatorRef(NonNull::new(raw).expect("Open MPI passes a communicator"))
    }

    /// The pointer.
    pub fn as_ptr(self) -> *mut sys::ompi_communicator_t {
        self.0.as_ptr()
    }

    /// This rank's place.
    pub fn group(self) -> Group {
        // SAFETY: the communicator is live (`from_raw`).
        unsafe {
            let comm = self.as_ptr();
            Group {
                rank: Rank(sys::hetccl_comm_rank(comm) as u32),
                size: sys::hetccl_comm_size(comm) as u32,
                remote_size: sys::hetccl_comm_is_inter(comm)
                    .then(|| sys::hetccl_comm_remote_size(comm) as u32),
            }
        }
    }

    /// Whether [`context`](Self::context) is the same on all ranks; for communicators of MPI sessions it is not.
    pub fn context_is_global(self) -> bool {
        // SAFETY: the communicator is live (`from_raw`).
        unsafe { sys::hetccl_comm_context_is_global(self.as_ptr()) }
    }

    /// The context id: the same on all ranks.
    pub fn context(self) -> u32 {
        // SAFETY: the communicator is live (`from_raw`).
        unsafe { sys::hetccl_comm_context(self.as_ptr()) }
    }

    /// Whether this is MPI_COMM_WORLD.
    pub fn is_world(self) -> bool {
        // SAFETY: the communicator is live (`from_raw`).
        unsafe { sys::hetccl_comm_is_world(self.as_ptr()) }
    }

    /// The intra-communicator of an inter-communicator's local group.
    pub fn local(self) -> Option<CommunicatorRef> {
        // SAFETY: the communicator is live, and so is its local one as long as it is.
        NonNull::new(unsafe { sys::hetccl_comm_local(self.as_ptr()) }).map(CommunicatorRef)
    }

    /// A reference that keeps the communicator alive.
    pub fn retain(self) -> RetainedCommunicator {
        // SAFETY: the communicator is live (`from_raw`).
        unsafe { sys::hetccl_comm_retain(self.as_ptr()) };
        let local = self.group().remote_size.and_then(|_| self.local());
        RetainedCommunicator { communicator: self, local }
    }

    /// The name of a process of the local or the remote group.
    pub fn peer(self, rank: usize, remote: bool) -> ProcessName {
        // SAFETY: the communicator is live; callers ask for ranks of its groups.
        ProcessName(unsafe { sys::hetccl_comm_peer_name(self.as_ptr(), rank as i32, remote) })
    }

    /// The name of the process that the engine calls `rank`: local group first, then the remote one.
    pub fn peer_of(self, rank: Rank) -> ProcessName {
        let local = self.group().len();
        match rank.index().checked_sub(local) {
            None => self.peer(rank.index(), false),
            Some(remote) => self.peer(remote, true),
        }
    }

    /// Whether processes of another job than `job` are in it.
    pub fn reaches_other_jobs(self, job: u32) -> bool {
        let group = self.group();
        (0..group.len()).any(|rank| self.peer(rank, false).job() != job)
            || (0..group.remote_len()).any(|rank| self.peer(rank, true).job() != job)
    }

    /// The topology's neighbours of this rank.
    ///
    /// # Errors
    /// Open MPI's status, where there is no topology.
    pub fn topology(self) -> Result<Topology, i32> {
        let (mut ins, mut outs) = (0, 0);
        // SAFETY: the communicator is live and the counters are ours.
        check(unsafe { sys::hetccl_topology_degrees(self.as_ptr(), &mut ins, &mut outs) })?;
        let mut sources = vec![0; ins as usize];
        let mut destinations = vec![0; outs as usize];
        // SAFETY: the arrays are as long as the call before said.
        check(unsafe {
            sys::hetccl_topology_neighbors(
                self.as_ptr(),
                sources.as_mut_ptr(),
                destinations.as_mut_ptr(),
            )
        })?;
        let ranks =
            |list: Vec<i32>| list.into_iter().map(|r| u32::try_from(r).ok().map(Rank)).collect();
        // SAFETY: the communicator is live.
        let kind = unsafe { sys::hetccl_comm_topology(self.as_ptr()) };
        Ok(Topology {
            sources: ranks(sources),
            destinations: ranks(destinations),
            cartesian: kind == sys::HETCCL_TOPO_CART as i32,
        })
    }
}

/// A communicator kept alive. May end it when dropped, which calls back into its modules: never under a lock.
#[derive(Debug)]
pub struct RetainedCommunicator {
    communicator: CommunicatorRef,
    local: Option<CommunicatorRef>,
}

impl Drop for RetainedCommunicator {
    fn drop(&mut self) {
        let local = self.local.map_or(std::ptr::null_mut(), CommunicatorRef::as_ptr);
        // SAFETY: both were retained in `CommunicatorRef::retain` and are released only here.
        unsafe { sys::hetccl_comm_release(self.communicator.as_ptr(), local) }
    }
}

/// Turns Open MPI's status into a result.
pub(crate) fn check(status: i32) -> Result<(), i32> {
    if status == sys::OMPI_SUCCESS { Ok(()) } else { Err(status) }
}
