//! A collective call in 64 bits: what all ranks must say alike, in a form that can be read again.

use std::fmt;

use hetccl_core::{Call, Collective, Datatype, Layout, Reduction, ReductionOp, Root};

/// Collective, operation, datatype and root of a call. Equal on all ranks of an intra-communicator.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 7 | the collective's place in [`Collective::ALL`], from 1 |
/// | 8 to 15 | the operation, from 1; 255: one that the program has made |
/// | 16 to 23 | the datatype of a reduction, from 1 |
/// | 24 to 47 | the root, from 1 |
///
/// 0 is no call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallWord(pub u64);

const OPERATIONS: [(ReductionOp, &str); 10] = [
    (ReductionOp::Sum, "sum"),
    (ReductionOp::Prod, "product"),
    (ReductionOp::Min, "minimum"),
    (ReductionOp::Max, "maximum"),
    (ReductionOp::LogicalAnd, "logical and"),
    (ReductionOp::LogicalOr, "logical or"),
    (ReductionOp::LogicalXor, "logical exclusive or"),
    (ReductionOp::BitAnd, "bitwise and"),
    (ReductionOp::BitOr, "bitwise or"),
    (ReductionOp::BitXor, "bitwise exclusive or"),
];

const DATATYPES: [(Datatype, &str); 12] = [
    (Datatype::Int8, "int8"),
    (Datatype::Int16, "int16"),
    (Datatype::Int32, "int32"),
    (Datatype::Int64, "int64"),
    (Datatype::Uint8, "uint8"),
    (Datatype::Uint16, "uint16"),
    (Datatype::Uint32, "uint32"),
    (Datatype::Uint64, "uint64"),
    (Datatype::Float16, "float16"),
    (Datatype::Bfloat16, "bfloat16"),
    (Datatype::Float32, "float32"),
    (Datatype::Float64, "float64"),
];

/// An operation that only the front end knows.
const EXTERNAL: u64 = 255;

impl CallWord {
    /// A collective without root and reduction.
    #[inline]
    pub const fn new(collective: Collective) -> CallWord {
        CallWord(collective as u64 + 1)
    }

    /// With a root.
    #[inline]
    #[must_use]
    pub const fn rooted(self, root: usize) -> CallWord {
        CallWord(self.0 | (root as u64 + 1) << 24)
    }

    /// With an operation and datatype of the engine's own.
    #[inline]
    #[must_use]
    pub const fn reducing(self, operation: ReductionOp, datatype: Datatype) -> CallWord {
        CallWord(self.0 | (operation as u64 + 1) << 8 | (datatype as u64 + 1) << 16)
    }

    /// The word of a request's call.
    pub fn of(call: &Call, reduction: Option<Reduction>) -> CallWord {
        let mut word = CallWord::new(call.collective);
        if matches!(call.root, Root::Rank(_)) {
            word = word.rooted(call.root_rank());
        }
        match reduction {
            None => word,
            Some(Reduction::Predefined(operation, datatype)) => word.reducing(operation, datatype),
            Some(Reduction::External(_)) => CallWord(word.0 | EXTERNAL << 8),
        }
    }

    /// The collective; `None` when the word is none.
    pub fn collective(self) -> Option<Collective> {
        let index = usize::try_from(self.0 & 0xff).ok()?.checked_sub(1)?;
        Collective::ALL.get(index).copied()
    }

    /// The root, if the collective has one.
    pub fn root(self) -> Option<u64> {
        (self.0 >> 24 & 0xff_ffff).checked_sub(1)
    }

    /// The operation's number, from 1; 0: none.
    pub fn operation(self) -> u64 {
        self.0 >> 8 & 0xff
    }

    /// The datatype's number, from 1; 0: none.
    pub fn datatype(self) -> u64 {
        self.0 >> 16 & 0xff
    }

    /// Whether all ranks give the same number of bytes in such a call.
    pub fn has_uniform_bytes(self) -> bool {
        use Collective::*;
        matches!(
            self.collective(),
            Some(
                Allgather
                    | Allreduce
                    | Alltoall
                    | Bcast
                    | Exscan
                    | Gather
                    | Reduce
                    | ReduceScatter
                    | ReduceScatterBlock
                    | Scan
                    | Scatter
            )
        )
    }
}

/// The bytes that a call is known by: those that all ranks must agree on, where they must, otherwise none.
pub fn counted_bytes(call: &Call, element_bytes: usize) -> usize {
    let elements = match (&call.layout, call.collective) {
        (Layout::Uniform { count, .. }, _) => *count,
        (Layout::Blocks { .. }, Collective::ReduceScatter) => {
            (0..call.group.len()).map(|rank| call.send_block(rank).len).sum()
        }
        _ => 0,
    };
    elements * element_bytes
}

impl fmt::Display for CallWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(collective) = self.collective() else { return f.write_str("nothing") };
        f.write_str(collective.name())?;
        let named = |number: u64| number.checked_sub(1).map(|n| n as usize);
        match self.operation() {
            0 => {}
            EXTERNAL => f.write_str(" by an operation of the program's own")?,
            number => {
                let name = named(number).and_then(|n| OPERATIONS.get(n)).map_or("?", |o| o.1);
                write!(f, " by {name}")?;
            }
        }
        if let Some(number) = named(self.datatype()) {
            write!(f, " of {}", DATATYPES.get(number).map_or("?", |d| d.1))?;
        }
        match self.root() {
            Some(root) => write!(f, " with root {root}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_where_the_numbers_say() {
        for (i, (operation, _)) in OPERATIONS.into_iter().enumerate() {
            assert_eq!(operation as usize, i);
        }
        for (i, (datatype, _)) in DATATYPES.into_iter().enumerate() {
            assert_eq!(datatype as usize, i);
        }
        for (i, collective) in Collective::ALL.into_iter().enumerate() {
            assert_eq!(collective as usize, i);
        }
    }

    #[test]
    fn a_word_can_be_read() {
        let word = CallWord::new(Collective::Reduce)
            .reducing(ReductionOp::Max, Datatype::Float64)
            .rooted(3);
        assert_eq!(word.to_string(), "reduce by maximum of float64 with root 3");
        assert_eq!((word.collective(), word.root()), (Some(Collective::Reduce), Some(3)));
        assert_eq!(CallWord::new(Collective::Barrier).to_string(), "barrier");
        assert_eq!(CallWord(0xffff).to_string(), "nothing");
        assert_ne!(word, CallWord::new(Collective::Reduce).rooted(3));
    }
}
