//! A translated call, ready to start any number of times.

use hetccl_core::{Call, Collective, Group, Layout, Root};
use hetccl_mca::{DatatypeRef, OpRef};
use hetccl_runtime::{Mode, Request, Settings};

use crate::reduction::{self, External};
use crate::view::View;

/// What a collective works on.
pub(crate) struct Prepared {
    call: Call,
    element_bytes: usize,
    reduction: Option<hetccl_core::Reduction>,
    external: Option<Box<External>>,
    input: View,
    output: View,
    /// The schedule may leave parts of the output as they are, or reads it: a packed copy is filled first.
    fill_output: bool,
}

impl Prepared {
    /// A collective that moves bytes.
    pub(crate) fn movement(
        collective: Collective,
        group: Group,
        settings: &Settings,
        layout: Layout,
    ) -> Prepared {
        Prepared {
            call: Call {
                collective,
                group,
                root: Root::None,
                layout,
                in_place: false,
                ordered: false,
                neighbours: None,
                chunk: settings.chunk(1),
                topology: None,
            },
            element_bytes: 1,
            reduction: None,
            external: None,
            input: View::none(),
            output: View::none(),
            fill_output: false,
        }
    }

    /// A collective that reduces elements of a datatype.
    pub(crate) fn reduction(
        collective: Collective,
        group: Group,
        settings: &Settings,
        layout: Layout,
        op: OpRef,
        datatype: DatatypeRef,
    ) -> Prepared {
        let (reduction, external) = reduction::translate(op, datatype);
        let element_bytes = datatype.size_bytes();
        let mut prepared = Prepared::movement(collective, group, settings, layout);
        prepared.element_bytes = element_bytes;
        prepared.reduction = Some(reduction);
        prepared.call.ordered = external.is_some() && !op.is_commutative();
        prepared.call.chunk = settings.chunk(element_bytes);
        prepared.external = external;
        prepared
    }

    pub(crate) fn root(mut self, root: Root) -> Prepared {
        self.call.root = root;
        self
    }

    pub(crate) fn in_place(mut self, in_place: bool) -> Prepared {
        self.call.in_place = in_place;
        self.fill_output |= in_place;
        self
    }

    pub(crate) fn neighbours(mut self, neighbours: hetccl_core::Neighbours) -> Prepared {
        self.call.neighbours = Some(neighbours);
        self
    }

    pub(crate) fn input(mut self, view: View) -> Prepared {
        self.input = view;
        self
    }

    pub(crate) fn output(mut self, view: View) -> Prepared {
        self.output = view;
        self
    }

    /// The schedule may leave the output, or parts of it, alone.
    pub(crate) fn keep_output(mut self) -> Prepared {
        self.fill_output = true;
        self
    }

    /// Keeps datatypes and operation alive for an operation that outlasts the call.
    pub(crate) fn retain(&mut self) {
        self.input.retain();
        self.output.retain();
        if let Some(external) = &mut self.external {
            external.retain();
        }
    }

    /// Reads the user's buffers, where they are packed.
    ///
    /// # Errors
    /// An MPI error class.
    #[inline]
    pub(crate) fn begin(&mut self) -> Result<(), i32> {
        self.input.gather()?;
        if self.fill_output { self.output.gather() } else { Ok(()) }
    }

    /// Writes the user's output, where it is packed.
    ///
    /// # Errors
    /// An MPI error class.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<(), i32> {
        self.output.spread()
    }

    /// How nonblocking and persistent forms of the call are numbered.
    pub(crate) fn mode(&self) -> Mode {
        if self.call.neighbours.is_some() { Mode::NonblockingNeighbour } else { Mode::Nonblocking }
    }

    /// For the runtime.
    #[inline]
    pub(crate) fn request(&self, mode: Mode) -> Request<'_> {
        Request {
            call: &self.call,
            element_bytes: self.element_bytes,
            reduction: self.reduction,
            input: self.input.region(),
            output: self.output.region(),
            fill_output: self.fill_output,
            declinable: false,
            average: false,
            mode,
        }
    }
}
