//! The journal and the watch of a communicator, as the collectives' entries use them.

use std::os::fd::AsRawFd;
use std::os::raw::c_int;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use hetccl_core::TransportError;
use hetccl_mca::sys;
use hetccl_runtime::watch::{CallWord, Ended, Patience, Ticket, Trouble, counted_bytes};
use hetccl_runtime::{Error, Request};

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

/// Writes a blocking call down.
pub(crate) fn begin(state: &ModuleState, request: &Request<'_>) {
    if let Some(watch) = &state.watch {
        let call = CallWord::of(request.call, request.reduction);
        watch.begin(0, call, counted_bytes(request.call, request.element_bytes));
    }
}

/// Writes down a blocking call that has failed before it was understood: the others wait for it.
#[cold]
pub(crate) fn failed_at_once(state: &ModuleState) {
    if let Some(watch) = &state.watch {
        let ticket = watch.begin(0, CallWord::default(), 0);
        watch.end(ticket, Ended::Failed);
    }
}

/// Writes down how the last call of a kind ended.
pub(crate) fn end(state: &ModuleState, kind: u8, ended: Ended) {
    if let Some(watch) = &state.watch
        && let Some(ticket) = watch.last(kind)
    {
        watch.end(ticket, ended);
    }
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

/// Looks at the other ranks, when it is time to; why there is no use in waiting for the last call of a kind.
pub(crate) fn look(state: &ModuleState, kind: u8, glances: &mut Glances) -> Option<TransportError> {
    glances.rounds = glances.rounds.wrapping_add(1);
    if !glances.rounds.is_multiple_of(ROUNDS_PER_CLOCK) || !glances.patience.is_due() {
        return None;
    }
    let watch = state.watch.as_ref()?;
    let ticket = watch.last(kind)?;
    let trouble = watch.look(ticket, &mut glances.patience, None).err()?;
    let (class, reason) = explain(state, kind, trouble);
    Some(TransportError::GivenUp { class, reason })
}

/// The class of a trouble of the last call of a kind, and its words.
pub(crate) fn explain(state: &ModuleState, kind: u8, trouble: Trouble) -> (c_int, String) {
    let known = state.watch.as_ref().and_then(|watch| Some((watch, watch.last(kind)?)));
    match known {
        Some((watch, ticket)) => (class(ticket, trouble), watch.describe(ticket, trouble)),
        None => (sys::MPI_ERR_OTHER as c_int, format!("{trouble:?}")),
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
