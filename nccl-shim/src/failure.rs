//! Errors as NCCL's codes with a text.

use hetccl_core::TransportError;
use hetccl_runtime::gpu;

use crate::abi::Code;

/// What went wrong: NCCL's code, and what failed, where, with which peer, what to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// NCCL's code.
    pub code: Code,
    /// The text for `ncclGetLastError`.
    pub text: String,
    /// The rank that failed, where it is another one.
    pub peer: Option<usize>,
}

impl Failure {
    /// A failure with this code.
    pub fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), peer: None }
    }

    /// A wrong argument.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, text)
    }

    /// A wrong use.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidUsage, text)
    }

    /// A failed call of the system, with what was being done.
    pub fn system(what: &str, error: &std::io::Error) -> Failure {
        Failure::new(Code::SystemError, format!("{what}: {error}"))
    }
}

impl From<gpu::Error> for Failure {
    fn from(error: gpu::Error) -> Self {
        Failure::new(Code::UnhandledCudaError, error.to_string())
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        of_peer(&error, code_of(&error), error.to_string())
    }
}

impl From<hetccl_runtime::Error> for Failure {
    fn from(error: hetccl_runtime::Error) -> Self {
        match error.transport() {
            Some(transport) => of_peer(transport, code_of(transport), error.to_string()),
            None => Failure::new(Code::InternalError, error.to_string()),
        }
    }
}

fn of_peer(error: &TransportError, code: Code, text: String) -> Failure {
    let (peer, text) = match error {
        TransportError::PeerFailed { peer, reason }
        | TransportError::Unreachable { peer, reason } => (Some(peer.index()), reason.clone()),
        _ => (None, text),
    };
    Failure { code, text, peer }
}

fn code_of(error: &TransportError) -> Code {
    match error {
        TransportError::Truncated { .. } => Code::InvalidUsage,
        TransportError::PeerFailed { .. }
        | TransportError::Unreachable { .. }
        | TransportError::GivenUp { .. } => Code::RemoteError,
        TransportError::Failed { operation, .. } => {
            if operation.starts_with("cu") || operation.starts_with("hip") {
                Code::UnhandledCudaError
            } else {
                Code::InternalError
            }
        }
    }
}
