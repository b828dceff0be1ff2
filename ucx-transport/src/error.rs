//! What can go wrong outside messages, and how UCX's statuses become [`TransportError`]s.

use hetccl_core::{Rank, TransportError};

use crate::library::Library;
use crate::sys;

/// UCX could not be loaded, set up or closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The library is not there or not usable.
    #[error(
        "UCX can't be loaded: looked for {looked_for}: {reason}. Install UCX 1.13 or later (Debian: libucx0, Fedora: ucx) or name the folder of libucp.so.0 in HETCCL_UCX_LIB"
    )]
    LibraryMissing {
        /// The file name, with its folder where one was named.
        looked_for: String,
        /// The dynamic loader's words.
        reason: String,
    },
    /// A call into UCX failed.
    #[error("{operation} failed with UCX status {native_code}: {reason}")]
    Call {
        /// The function.
        operation: &'static str,
        /// UCX's status.
        native_code: i32,
        /// UCX's words for it.
        reason: String,
    },
    /// A number does not fit into message tags.
    #[error("{what} is {value}, at most {limit} is possible over UCX")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        value: u64,
        /// How large it may be.
        limit: u64,
    },
    /// Endpoints were not closed in time.
    #[error(
        "{endpoints} UCX endpoints were not closed in time, their peers don't answer; they were dropped"
    )]
    NotClosed {
        /// How many.
        endpoints: usize,
    },
}

impl Error {
    /// A status as an error; success is none.
    pub(crate) fn check(
        library: &Library,
        operation: &'static str,
        status: sys::ucs_status_t,
    ) -> Result<(), Error> {
        if status == sys::UCS_OK {
            return Ok(());
        }
        let reason = library.status_text(status);
        Err(Error::Call { operation, native_code: i32::from(status), reason })
    }
}

/// A failed message or access of remote memory, as the engine sees it.
#[cold]
pub(crate) fn transport_error(
    library: &Library,
    operation: &'static str,
    peer: Rank,
    status: sys::ucs_status_t,
) -> TransportError {
    let reason = library.status_text(status);
    match status {
        sys::UCS_ERR_UNREACHABLE
        | sys::UCS_ERR_SOME_CONNECTS_FAILED
        | sys::UCS_ERR_INVALID_ADDR => TransportError::Unreachable {
            peer,
            reason: format!(
                "{operation}: {reason} (no UCX transport in common; UCX_TLS and UCX_NET_DEVICES choose them)"
            ),
        },
        status if is_endpoint_failure(status) => {
            TransportError::PeerFailed { peer, reason: format!("{operation}: {reason}") }
        }
        _ => TransportError::Failed { operation, native_code: i32::from(status), reason },
    }
}

/// Whether a status means that the endpoint is of no more use.
fn is_endpoint_failure(status: sys::ucs_status_t) -> bool {
    matches!(
        status,
        sys::UCS_ERR_CONNECTION_RESET
            | sys::UCS_ERR_NOT_CONNECTED
            | sys::UCS_ERR_REJECTED
            | sys::UCS_ERR_TIMED_OUT
            | sys::UCS_ERR_IO_ERROR
            | sys::UCS_ERR_CANCELED
    ) || (sys::UCS_ERR_LAST_ENDPOINT_FAILURE..=sys::UCS_ERR_FIRST_LINK_FAILURE).contains(&status)
}
