//! What a task is made of, and its translation to the runtime's requests.

use hetccl_core::{
    Address, Call, Collective, Layout, MemoryType, Rank, Reduction, ReductionOp, Region, Root,
};
use hetccl_runtime::Direction;
use hetccl_runtime::gpu::{Change, Context, Driver, Gpus, LoadedKernels};

use crate::Failure;
use crate::abi::Element;
use crate::reducer;

/// One thing that a program asked for.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Collective(CollectiveWork),
    Message {
        direction: Direction,
        peer: usize,
        address: usize,
        len_bytes: usize,
    },
    Put(PutWork),
    /// Waits for so many of a signal.
    Signals(Signal, u64),
}

/// A put into another rank's window, or, without bytes, only a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutWork {
    pub(crate) peer: usize,
    pub(crate) address: usize,
    pub(crate) len_bytes: usize,
    /// The window's number, the same on all ranks.
    pub(crate) window: usize,
    pub(crate) offset_bytes: usize,
    /// What the other rank counts when the bytes are there; its `peer` is of no meaning here.
    pub(crate) signal: Signal,
}

/// One of the counters that a rank has of puts and signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signal {
    /// Who puts or signals.
    pub(crate) peer: usize,
    pub(crate) index: u32,
    pub(crate) context: u32,
}

/// A collective as NCCL says it.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveWork {
    pub(crate) collective: Collective,
    pub(crate) root: Option<usize>,
    /// Elements (of a block, where there are several).
    pub(crate) count: usize,
    pub(crate) element: Element,
    pub(crate) reduce: Option<Reduce>,
    pub(crate) send: usize,
    pub(crate) recv: usize,
}

/// An operation of NCCL's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduce {
    Plain(ReductionOp),
    Average,
    /// An average in which this rank counts by a factor, an element's bits; the sum is divided where there is a divisor.
    Weighted {
        factor: u64,
        divisor: Option<u64>,
    },
    /// Each rank multiplies its contribution, then sum.
    MultiplyAndSum(Scalar),
}

/// The factor: an element's bits, or where the device has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    Host(u64),
    Device(usize),
}

/// A collective with its buffers as the runtime wants them.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) call: Call,
    pub(crate) element_bytes: usize,
    pub(crate) reduction: Option<Reduction>,
    pub(crate) input: Region,
    pub(crate) output: Region,
    pub(crate) fill_output: bool,
    /// The result lies in a temporary block and goes here at the end.
    pub(crate) move_to: Option<Region>,
    /// Rank 0 can make the average of the sum, where it does the work of all; `before` and `after` are for where it doesn't.
    pub(crate) average: bool,
    /// Done to the input before.
    pub(crate) before: Option<Scale>,
    /// Done to the output after.
    pub(crate) after: Option<Scale>,
    /// A temporary block of so many bytes takes the place of the input or output.
    pub(crate) temporary: Option<(Place, usize)>,
    /// Copied beside the collective: the root's own buffer of a broadcast that is not in place.
    pub(crate) beside: Option<(Region, Region)>,
}

/// What a temporary block stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Input,
    Output,
}

/// What is done to each element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    By(Change),
    ByScalarAt(usize),
}

impl Work {
    /// What it is, in words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Work::Collective(work) => {
                let bytes = work.count * work.element.size_bytes();
                format!(
                    "{} of {} x {} ({bytes} bytes)",
                    work.collective.name(),
                    work.count,
                    work.element.name()
                )
            }
            Work::Put(PutWork { peer, len_bytes: 0, .. }) => format!("signal to rank {peer}"),
            Work::Put(PutWork { peer, len_bytes, window, .. }) => {
                format!("put of {len_bytes} bytes into window {window} of rank {peer}")
            }
            Work::Signals(Signal { peer, index, .. }, count) => {
                format!("wait for {count} of signal {index} of rank {peer}")
            }
            Work::Message { direction: Direction::Send, peer, len_bytes, .. } => {
                format!("send of {len_bytes} bytes to rank {peer}")
            }
            Work::Message { peer, len_bytes, .. } => {
                format!("receive of {len_bytes} bytes from rank {peer}")
            }
        }
    }

    /// Loads the kernels that the work needs: not while its stream waits, since a driver may wait for that stream then.
    pub(crate) fn load_kernels(
        &self,
        driver: &dyn Driver,
        context: Context,
        kernels: &LoadedKernels,
    ) {
        let Work::Collective(CollectiveWork { element, reduce: Some(reduce), .. }) = self else {
            return;
        };
        let (op, changes) = match *reduce {
            Reduce::Plain(op) => (op, [None, None]),
            Reduce::Average => (ReductionOp::Sum, [Some(Change::Divide(1)), None]),
            Reduce::MultiplyAndSum(_) => (ReductionOp::Sum, [Some(Change::Multiply(1)), None]),
            Reduce::Weighted { factor, divisor } => {
                (ReductionOp::Sum, [Some(Change::Multiply(factor)), divisor.map(Change::Divide)])
            }
        };
        if let Element::Core(datatype) = *element {
            kernels.prepare(driver, context, op, datatype);
        }
        for change in changes.into_iter().flatten() {
            kernels.prepare_change(driver, context, change, element.mapped());
        }
    }
}

impl CollectiveWork {
    /// Whether nothing is done to contributions or results.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.reduce, Some(Reduce::Plain(_)) | None)
    }

    /// Whether it is a reduce_scatter whose result replaces the rank's own block.
    pub(crate) fn is_reduce_scatter_in_place(&self, rank: usize) -> bool {
        let own = self.send + rank * self.count * self.element.size_bytes();
        self.collective == Collective::ReduceScatterBlock && self.recv == own
    }

    /// The request for this rank.
    ///
    /// # Errors
    /// A buffer that is freed, or that can't be scaled where it is.
    pub(crate) fn prepare(
        &self,
        gpus: &mut Gpus,
        rank: usize,
        size: usize,
    ) -> Result<Prepared, Failure> {
        let element_bytes = self.element.size_bytes();
        let block = self.count * element_bytes;
        let at_root = self.root.is_none_or(|root| root == rank);
        let (input_bytes, output_bytes) = match self.collective {
            Collective::Allreduce => (block, block),
            Collective::Reduce => (block, if at_root { block } else { 0 }),
            Collective::Bcast => {
                if at_root {
                    (block, 0)
                } else {
                    (0, block)
                }
            }
            Collective::Allgather => (block, block * size),
            Collective::ReduceScatterBlock => (block * size, block),
            Collective::Gather => (block, if at_root { block * size } else { 0 }),
            Collective::Scatter => (if at_root { block * size } else { 0 }, block),
            _ => (block * size, block * size),
        };
        let own = rank * block;
        let in_place = match self.collective {
            Collective::Allreduce | Collective::Alltoall => self.send == self.recv,
            Collective::Reduce => at_root && self.send == self.recv,
            Collective::Allgather => self.send == self.recv + own,
            Collective::Gather => at_root && self.send == self.recv + own,
            Collective::Scatter => at_root && self.recv == self.send + own,
            _ => false,
        };
        let mut call = Call::new(self.collective, rank, size, Layout::uniform(self.count));
        if let Some(root) = self.root {
            call.root = Root::Rank(Rank::from(root));
        }
        call.in_place = in_place;
        let mut input = region(gpus, self.send, input_bytes)?;
        let mut output = region(gpus, self.recv, output_bytes)?;
        if in_place {
            if self.collective == Collective::Scatter {
                output = Region::default();
            } else {
                input = Region::default();
            }
        }
        let mut prepared = Prepared {
            call,
            element_bytes,
            reduction: None,
            input,
            output,
            fill_output: in_place && self.collective != Collective::Scatter,
            move_to: None,
            average: false,
            before: None,
            after: None,
            temporary: None,
            beside: None,
        };
        if self.collective == Collective::Bcast && at_root && self.send != self.recv {
            prepared.beside = Some((input, region(gpus, self.recv, block)?));
        }
        if let Some(reduce) = self.reduce {
            self.reduction(&mut prepared, reduce, size)?;
        }
        let overlaps = self.recv >= self.send && self.recv < self.send + input_bytes;
        if self.collective == Collective::ReduceScatterBlock
            && overlaps
            && prepared.temporary.is_none()
        {
            // NCCL's in-place form: the result replaces a block of the input.
            prepared.move_to = Some(output);
            prepared.temporary = Some((Place::Output, output_bytes));
        }
        Ok(prepared)
    }

    fn reduction(
        &self,
        prepared: &mut Prepared,
        reduce: Reduce,
        size: usize,
    ) -> Result<(), Failure> {
        let op = match reduce {
            Reduce::Plain(op) => op,
            Reduce::Average | Reduce::Weighted { .. } | Reduce::MultiplyAndSum(_) => {
                ReductionOp::Sum
            }
        };
        prepared.reduction = match self.element {
            Element::Core(datatype) => Some(Reduction::Predefined(op, datatype)),
            _ => reducer::reduction(self.element, op),
        };
        let narrow = match self.element {
            Element::Core(datatype) => datatype == hetccl_core::Datatype::Float16,
            _ => true,
        };
        prepared.average = matches!((reduce, self.element), (Reduce::Average, Element::Core(_)));
        match reduce {
            Reduce::Plain(_) => return Ok(()),
            // Half-precision and fp8 sums overflow soon, so each contribution is divided.
            Reduce::Average if narrow => {
                prepared.before = Some(Scale::By(Change::Divide(size as u64)))
            }
            Reduce::Average => prepared.after = Some(Scale::By(Change::Divide(size as u64))),
            Reduce::Weighted { factor, divisor } => {
                prepared.before = Some(Scale::By(Change::Multiply(factor)));
                prepared.after = divisor.map(|divisor| Scale::By(Change::Divide(divisor)));
            }
            Reduce::MultiplyAndSum(Scalar::Host(bits)) => {
                prepared.before = Some(Scale::By(Change::Multiply(bits)));
            }
            Reduce::MultiplyAndSum(Scalar::Device(address)) => {
                prepared.before = Some(Scale::ByScalarAt(address));
            }
        }
        let buffer = if prepared.call.in_place { prepared.output } else { prepared.input };
        if buffer.memory == MemoryType::Host {
            return Err(Failure::argument(
                "averages and scaled sums need their buffers in device memory",
            ));
        }
        if prepared.before.is_some() && !prepared.call.in_place {
            prepared.temporary = Some((Place::Input, prepared.input.len_bytes));
        }
        Ok(())
    }
}

/// Memory of the program.
///
/// # Errors
/// It was device memory and is no longer.
pub(crate) fn region(gpus: &mut Gpus, address: usize, len_bytes: usize) -> Result<Region, Failure> {
    if len_bytes == 0 {
        return Ok(Region::default());
    }
    let memory = gpus.memory(address)?;
    Ok(Region { address: Address(address), len_bytes, memory })
}
