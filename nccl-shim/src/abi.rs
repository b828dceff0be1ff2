//! Types and values of NCCL's interface. Source: NCCL's public documentation of 2.32.

use std::ffi::{c_int, c_void};

use hetccl_core::{Datatype, ReductionOp};

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
