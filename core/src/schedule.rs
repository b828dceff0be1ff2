//! A rank's part of a collective: steps over parts of named buffers, and which step waits for which.

use crate::types::Rank;

/// A buffer that a step touches, bound to memory when the schedule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// The caller's contribution. In place, it is another name for [`Buffer::Output`].
    Input,
    /// Where the caller wants the result.
    Output,
    /// Temporary memory that the engine brings; several can be asked for.
    Scratch(u8),
}

/// A part of a buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Which buffer.
    pub buffer: Buffer,
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Span {
    /// `len` elements of `buffer` from `start` on.
    pub const fn new(buffer: Buffer, start: usize, len: usize) -> Span {
        Span { buffer, start, len }
    }

    /// The element after the last.
    #[inline]
    pub const fn end(&self) -> usize {
        self.start + self.len
    }

    /// The part of this span that starts `offset` elements in and has `len` elements.
    ///
    /// # Panics
    /// When the part is not inside this span.
    #[must_use]
    pub fn part(&self, offset: usize, len: usize) -> Span {
        assert!(offset + len <= self.len, "part {offset}+{len} outside a span of {}", self.len);
        Span { buffer: self.buffer, start: self.start + offset, len }
    }
}

/// A step's number in its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u32);

/// A collective that a vendor's library does among the ranks of one of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupCollective {
    /// The group's inputs are combined; its i-th rank gets the i-th of equally long parts.
    ReduceScatter,
    /// All ranks' inputs, in the order of the group, reach all ranks.
    Allgather,
    /// The group's inputs are combined at the root; the others have no output.
    Reduce,
    /// The root's input reaches the outputs of all ranks; the others have no input.
    Bcast,
}

/// What a rank does in one step.
///
/// The n-th `Send` to a rank matches the n-th `Recv` from this one there, in program order; both have the same
/// length. `Send` and `Recv` carry n modulo 65,536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a span to a rank.
    Send {
        /// Receiver.
        peer: Rank,
        /// The message's number in this direction of the pair.
        message: u16,
        /// What is sent.
        from: Span,
    },
    /// Receive from a rank into a span.
    Recv {
        /// Sender.
        peer: Rank,
        /// The message's number in this direction of the pair.
        message: u16,
        /// Where it goes.
        into: Span,
    },
    /// Copy a span to another of the same length.
    Copy {
        /// Source.
        from: Span,
        /// Destination.
        into: Span,
    },
    /// `into = left op right`, elementwise; `left` holds the lower ranks' contributions.
    Reduce {
        /// Left operand.
        left: Span,
        /// Right operand.
        right: Span,
        /// Result: `left` or `right` itself, or a span that overlaps neither.
        into: Span,
    },
    /// A collective of the vendor's library in this rank's library group
    /// ([`Hierarchy::library_group`](crate::topology::Hierarchy::library_group)). The n-th of a rank is one with the n-th of
    /// all ranks of its group; they follow each other in program order.
    Group {
        /// Which.
        collective: GroupCollective,
        /// The root's place in the group, where there is one.
        root: u32,
        /// This rank's contribution.
        from: Span,
        /// Its result: apart from `from`, or in place as the library has it - the rank's part of the whole, or all of it.
        into: Span,
    },
}

/// This rank's steps, the dependencies between them and the scratch memory they need.
///
/// Made by a [`Builder`](crate::Builder) only; immutable, so that one schedule serves any number of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) steps: Box<[Step]>,
    /// `successors[offsets[i]..offsets[i + 1]]` wait for step i.
    pub(crate) offsets: Box<[u32]>,
    pub(crate) successors: Box<[StepId]>,
    /// For each step, how many steps it waits for.
    pub(crate) waits_for: Box<[u32]>,
    /// Elements of each scratch buffer.
    pub(crate) scratch: Box<[usize]>,
    /// In place: Input names the same memory as Output.
    pub(crate) in_place: bool,
}

impl Schedule {
    /// The steps, in program order: every dependency points backwards.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether there are calls of the vendor's library.
    pub fn has_group_steps(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Group { .. }))
    }

    /// The steps that wait for `step`.
    #[inline]
    pub fn successors(&self, step: StepId) -> &[StepId] {
        let i = step.0 as usize;
        &self.successors[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// How many steps each step waits for.
    pub fn waits_for(&self) -> &[u32] {
        &self.waits_for
    }

    /// Elements of each scratch buffer, in order of their numbers.
    pub fn scratch(&self) -> &[usize] {
        &self.scratch
    }

    /// Elements of all scratch buffers together.
    pub fn scratch_total(&self) -> usize {
        self.scratch.iter().sum()
    }

    /// Whether [`Buffer::Input`] is another name for [`Buffer::Output`].
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// Memory that the schedule itself takes, in bytes.
    pub fn footprint_bytes(&self) -> usize {
        size_of::<Schedule>()
            + size_of_val(&*self.steps)
            + size_of_val(&*self.offsets)
            + size_of_val(&*self.successors)
            + size_of_val(&*self.waits_for)
            + size_of_val(&*self.scratch)
    }
}
