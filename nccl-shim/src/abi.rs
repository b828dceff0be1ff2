//! Types and values of NCCL's interface. Source: NCCL's public documentation of 2.32.

use std::ffi::{c_char, c_int, c_void};

use hetccl_core::{Datatype, ReductionOp};
use hetccl_runtime::gpu::MapType;

use crate::Failure;

/// `ncclComm_t`.
pub type CommHandle = *mut c_void;
/// `cudaStream_t` or `hipStream_t`.
pub type StreamHandle = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueId {
    /// What only its maker understands.
    pub bytes: [u8; 128],
}

/// `ncclResult_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done, or queued.
    Success = 0,
    /// A call of the driver failed.
    UnhandledCudaError = 1,
    /// A call of the system failed.
    SystemError = 2,
    /// A mistake of the library's own.
    InternalError = 3,
    /// A wrong argument.
    InvalidArgument = 4,
    /// A wrong use, such as a group that is left open.
    InvalidUsage = 5,
    /// A peer failed.
    RemoteError = 6,
    /// Not finished yet.
    InProgress = 7,
}

impl Code {
    /// From a number of the vendor's library; what newer versions add is an internal error.
    pub fn from_number(number: c_int) -> Code {
        use Code::*;
        let known = [
            Success,
            UnhandledCudaError,
            SystemError,
            InternalError,
            InvalidArgument,
            InvalidUsage,
            RemoteError,
            InProgress,
        ];
        let found = usize::try_from(number).ok().and_then(|number| known.get(number));
        found.copied().unwrap_or(InternalError)
    }
}

/// `ncclConfig_t`, as far as it is looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the caller's structure.
    pub size: usize,
    /// 0xcafebeef.
    pub magic: u32,
    /// The version of the caller's header.
    pub version: u32,
    /// 0: calls that make communicators return at once.
    pub blocking: c_int,
}

/// `ncclCollConfig_t`, as far as it is looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollConfig {
    /// Bytes of the caller's structure.
    pub size: usize,
    /// 0xcafebeef.
    pub magic: u32,
    /// The version of the caller's header.
    pub version: u32,
    /// Vendors' options.
    pub ext: *mut c_void,
    /// Thread blocks, for NCCL's kernels.
    pub tuning: [c_int; 4],
    /// Which algorithms may be used: NCCL's names.
    pub algorithms: *const c_char,
    /// 0: another algorithm is as good.
    pub force: c_int,
    /// Another number for NCCL's kernels.
    pub policy: c_int,
    /// For profilers of NCCL.
    pub tag: u64,
    /// An event that NCCL records when its kernel has been launched (from 2.32 on).
    pub launched: *mut c_void,
}

/// `ncclWaitSignalDesc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WaitDescription {
    /// Signals to wait for, the peer, the signal's index, the context.
    pub numbers: [c_int; 4],
}

/// `ncclCommProperties_t`, as far as 2.29 has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Bytes of the caller's structure.
    pub size: usize,
    /// 0xcafebeef.
    pub magic: u32,
    /// The version of the caller's header.
    pub version: u32,
    /// The caller's rank.
    pub rank: c_int,
    /// Ranks.
    pub ranks: c_int,
    /// The device's number.
    pub device: c_int,
    /// The device's number in the management library; -1 where it is not known.
    pub management_device: c_int,
    /// Kernels may communicate.
    pub device_interface: bool,
    /// Multicast memory.
    pub multimem: bool,
    /// How kernels reach the network: 0, not at all.
    pub network: c_int,
    /// Groups of ranks whose memory kernels reach: none.
    pub lsa_teams: c_int,
    /// One-sided calls.
    pub one_sided: bool,
}

/// What [`Config::magic`] must be.
pub const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// `ncclScalarDevice`.
pub const SCALAR_DEVICE: c_int = 0;
/// `NCCL_SPLIT_NOCOLOR`.
pub const NO_COLOR: c_int = -1;

/// `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// One that the runtime reduces.
    Core(Datatype),
    /// OCP's E4M3.
    Float8e4m3,
    /// OCP's E5M2.
    Float8e5m2,
}

impl Element {
    /// From NCCL's number.
    ///
    /// # Errors
    /// A number that is no datatype.
    pub fn from_number(number: c_int) -> Result<Element, Failure> {
        Ok(Element::Core(match number {
            0 => Datatype::Int8,
            1 => Datatype::Uint8,
            2 => Datatype::Int32,
            3 => Datatype::Uint32,
            4 => Datatype::Int64,
            5 => Datatype::Uint64,
            6 => Datatype::Float16,
            7 => Datatype::Float32,
            8 => Datatype::Float64,
            9 => Datatype::Bfloat16,
            10 => return Ok(Element::Float8e4m3),
            11 => return Ok(Element::Float8e5m2),
            _ => {
                return Err(Failure::argument(format!(
                    "{number} is not a datatype; they go from 0 (int8) to 11 (float8 e5m2)"
                )));
            }
        }))
    }

    /// As kernels know it.
    pub fn mapped(self) -> MapType {
        match self {
            Element::Core(datatype) => datatype.into(),
            Element::Float8e4m3 => MapType::Float8e4m3,
            Element::Float8e5m2 => MapType::Float8e5m2,
        }
    }

    /// The word for reports.
    pub fn name(self) -> String {
        match self {
            Element::Core(datatype) => format!("{datatype:?}").to_lowercase(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Bytes of one.
    pub const fn size_bytes(self) -> usize {
        match self {
            Element::Core(datatype) => datatype.size_bytes(),
            Element::Float8e4m3 | Element::Float8e5m2 => 1,
        }
    }
}

/// The four operations of `ncclRedOp_t` that have no parameter.
pub const OPERATIONS: [ReductionOp; 4] =
    [ReductionOp::Sum, ReductionOp::Prod, ReductionOp::Max, ReductionOp::Min];
/// `ncclAvg`.
pub const AVERAGE: c_int = 4;
