//! The exported functions, by family.

mod collective;
mod communicator;
mod device;
mod parameter;
#[cfg(any(hetccl_rccl, not(hetccl_exports)))]
mod rccl;

/// All functions of NCCL's interface.
pub const NCCL: [&[crate::entry::Function]; 4] =
    [collective::FUNCTIONS, communicator::FUNCTIONS, device::FUNCTIONS, parameter::FUNCTIONS];
/// Those that RCCL adds.
#[cfg(any(hetccl_rccl, not(hetccl_exports)))]
pub const RCCL: &[crate::entry::Function] = rccl::FUNCTIONS;
