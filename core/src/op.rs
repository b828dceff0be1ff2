//! Datatypes and reduction operations that hetccl computes itself, and the door to those it doesn't.

/// Element types of reductions. The layout is the C one, packed, in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Datatype {
    /// 8-bit signed integer.
    Int8,
    /// 16-bit signed integer.
    Int16,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// 8-bit unsigned integer.
    Uint8,
    /// 16-bit unsigned integer.
    Uint16,
    /// 32-bit unsigned integer.
    Uint32,
    /// 64-bit unsigned integer.
    Uint64,
    /// IEEE 754 binary16.
    Float16,
    /// bfloat16: binary32 with the lower half cut off.
    Bfloat16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
}

impl Datatype {
    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Datatype::Int8 | Datatype::Uint8 => 1,
            Datatype::Int16 | Datatype::Uint16 | Datatype::Float16 | Datatype::Bfloat16 => 2,
            Datatype::Int32 | Datatype::Uint32 | Datatype::Float32 => 4,
            Datatype::Int64 | Datatype::Uint64 | Datatype::Float64 => 8,
        }
    }

    /// Whether the type is an integer type, the only ones with logical and bitwise operations.
    pub const fn is_integer(self) -> bool {
        !matches!(
            self,
            Datatype::Float16 | Datatype::Bfloat16 | Datatype::Float32 | Datatype::Float64
        )
    }
}

/// Reduction operations that hetccl computes itself; all are associative and commutative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReductionOp {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Logical and: 1 where both are non-zero.
    LogicalAnd,
    /// Logical or: 1 where one is non-zero.
    LogicalOr,
    /// Logical exclusive or: 1 where exactly one is non-zero.
    LogicalXor,
    /// Bitwise and.
    BitAnd,
    /// Bitwise or.
    BitOr,
    /// Bitwise exclusive or.
    BitXor,
}

/// How a `Reduce` step combines two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// One that the device computes itself.
    Predefined(ReductionOp, Datatype),
    /// One that the front end computes: a user's function, or a datatype only it knows. The number is
    /// the front end's own and is handed back to it.
    External(usize),
}
