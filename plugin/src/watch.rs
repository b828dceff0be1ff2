//! The journal and the watch of a communicator, as the collectives' entries use them.

use std::os::fd::AsRawFd;
use std::os::raw::c_int;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Instant;

use hetccl_core::TransportError;
use hetccl_mca::sys;
use hetccl_runtime::watch::{
    BLOCKING, CallWord, Ended, INTERVAL, NEIGHBOURHOOD, NONBLOCKING, Patience, Ticket, Trouble,
    counted_bytes,
};
use hetccl_runtime::{Error, Mode, Request};

use crate::module::ModuleState;
use crate::state::Plugin;

/// Rounds of waiting between two looks at the clock.
const ROUNDS_PER_CLOCK: u32 = 64;

/// When to look at the other ranks.
#[derive(Debug)]
pub(crate) struct Glances {
    rounds: u32,
    patience: Patience,
}

impl Glances {
    pub(crate) fn new() -> Glances {
        Glances { rounds: 0, patience: Patience::new() }
    }
}

/// When to look at the other ranks of nonblocking calls.
#[derive(Debug)]
pub(crate) struct Rounds {
    rounds: u32,
    last: Instant,
}

impl Rounds {
    pub(crate) fn new() -> Rounds {
        Rounds { rounds: 0, last: Instant::now() }
    }

    /// Counts a round of progress; whether it is time.
    pub(crate) fn is_time(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS_PER_CLOCK) || self.last.elapsed() < INTERVAL {
            return false;
        }
        self.last = Instant::now();
        true
    }
}

/// Writes a call down.
pub(crate) fn begin(state: &ModuleState, request: &Request<'_>) -> Option<Ticket> {
    let kind = match request.mode {
        Mode::Blocking => BLOCKING,
        Mode::Nonblocking => NONBLOCKING,
        Mode::NonblockingNeighbour => NEIGHBOURHOOD,
    };
    let call = CallWord::of(request.call, request.reduction);
    let bytes = counted_bytes(request.call, request.element_bytes);
    state.watch.as_ref().map(|watch| watch.begin(kind, call, bytes))
}

/// Writes down a blocking call that has failed before it was understood: the others wait for it.
#[cold]
pub(crate) fn failed_at_once(state: &ModuleState) {
    if let Some(watch) = &state.watch {
        let ticket = watch.begin(BLOCKING, CallWord::default(), 0);
        watch.end(ticket, Ended::Failed);
    }
}

/// Writes down how a call ended.
pub(crate) fn end(state: &ModuleState, ticket: Option<Ticket>, ended: Ended) {
    if let (Some(watch), Some(ticket)) = (&state.watch, ticket) {
        watch.end(ticket, ended);
    }
}

/// The blocking call under way.
pub(crate) fn in_call(state: &ModuleState) -> Option<Ticket> {
    state.watch.as_ref()?.last(BLOCKING)
}

/// The status of a call on a communicator on which an earlier one has failed in the middle.
pub(crate) fn refuse(state: &ModuleState, request: &Request<'_>) -> Option<c_int> {
    if !state.watch.as_ref()?.is_broken() {
        return None;
    }
    hetccl_mca::tell(&format!(
        "{} on communicator {} (rank {} of {}) is refused: an earlier collective has failed in the middle; make a new \
         communicator of the ranks that are left",
        request.call.collective.name(),
        state.comm.context(),
        state.group.rank,
        state.group.size
    ));
    Some(sys::MPI_ERR_OTHER as c_int)
}

/// Looks at the other ranks, when it is time to; why there is no use in waiting for the blocking call under way.
pub(crate) fn look(state: &ModuleState, glances: &mut Glances) -> Option<TransportError> {
    glances.rounds = glances.rounds.wrapping_add(1);
    if !glances.rounds.is_multiple_of(ROUNDS_PER_CLOCK) || !glances.patience.is_due() {
        return None;
    }
    let watch = state.watch.as_ref()?;
    let ticket = watch.last(BLOCKING)?;
    let trouble = watch.look(ticket, &mut glances.patience, None).err()?;
    Some(given_up(state, Some(ticket), trouble))
}

/// The error of a call that there is no use in waiting for.
pub(crate) fn given_up(
    state: &ModuleState,
    ticket: Option<Ticket>,
    trouble: Trouble,
) -> TransportError {
    let (class, reason) = explain(state, ticket, trouble);
    TransportError::GivenUp { class, reason }
}

/// What a member has called instead of a call, where that can be seen.
pub(crate) fn difference(
    state: &ModuleState,
    ticket: Option<Ticket>,
    peer: usize,
) -> Option<Trouble> {
    state.watch.as_ref()?.difference(ticket?, peer)
}

/// The class of a trouble of a call, and its words.
pub(crate) fn explain(
    state: &ModuleState,
    ticket: Option<Ticket>,
    trouble: Trouble,
) -> (c_int, String) {
    match (&state.watch, ticket) {
        (Some(watch), Some(ticket)) => (class(ticket, trouble), watch.describe(ticket, trouble)),
        _ => (sys::MPI_ERR_OTHER as c_int, format!("{trouble:?}")),
    }
}

/// The class of a trouble.
fn class(ticket: Ticket, trouble: Trouble) -> c_int {
    let class = match trouble {
        Trouble::Ended { .. } => return hetccl_mca::failed_process_error(),
        Trouble::Mismatch { call, .. } if call.collective() != ticket.call.collective() => {
            sys::MPI_ERR_OTHER
        }
        Trouble::Mismatch { call, .. } if call.operation() != ticket.call.operation() => {
            sys::MPI_ERR_OP
        }
        Trouble::Mismatch { call, .. } if call.datatype() != ticket.call.datatype() => {
            sys::MPI_ERR_TYPE
        }
        Trouble::Mismatch { call, .. } if call.root() != ticket.call.root() => sys::MPI_ERR_ROOT,
        Trouble::Mismatch { .. } => sys::MPI_ERR_TRUNCATE,
        _ => sys::MPI_ERR_OTHER,
    };
    class as c_int
}

/// What becomes of a communicator after an error on the wire.
pub(crate) fn how(error: &Error) -> Ended {
    match error.transport() {
        Some(
            TransportError::GivenUp { .. }
            | TransportError::PeerFailed { .. }
            | TransportError::Unreachable { .. }
            | TransportError::Truncated { .. },
        ) => Ended::Broken,
        _ => Ended::Failed,
    }
}

/// Leaves the journal in the folder that HETCCL_DUMP names, for `hetccl inspect`.
pub(crate) fn dump() {
    let Some(folder) = std::env::var_os("HETCCL_DUMP") else { return };
    let Some(journal) = Plugin::get().journal() else { return };
    let path = PathBuf::from(folder).join(format!("hetccl-{}.journal", std::process::id()));
    let file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    match file {
        Ok(file) if journal.write_to(file.as_raw_fd()) => {}
        Ok(_) => hetccl_mca::tell(&format!("writing {} failed", path.display())),
        Err(error) => hetccl_mca::tell(&format!("creating {} failed: {error}", path.display())),
    }
}
