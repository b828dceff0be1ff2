//! Reductions on the device: the kernels of `kernels/reduce.h`, loaded at their first use in a context.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hetccl_core::{Datatype, ReductionOp};

use crate::driver::{Context, Driver, Function, Launch, Stream};
use crate::error::Error;

/// Threads of a block.
const THREADS: u32 = 512;
/// Most blocks of a launch; each thread goes on to the next element until all are done.
/// Eight blocks for each of an H200's 132 multiprocessors; see `kernels/README.md` for what was measured.
const MOST_BLOCKS: usize = 1056;
/// Bytes that a block takes at least.
const BLOCK_BYTES: usize = 32 << 10;

/// Most inputs of one launch.
pub const MOST_INPUTS: usize = 8;

/// The kernel that copies bytes.
const COPY: &str = "hetccl_copy";

/// What a kernel makes of several inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Between two elements.
    pub op: ReductionOp,
    /// Of the elements.
    pub datatype: Datatype,
    /// What a sum is divided by in the end.
    pub divisor: Option<u64>,
}

/// What a kernel does to each element of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Multiplies by an element, which the low bytes hold.
    Multiply(u64),
    /// Divides by a number.
    Divide(u64),
}

/// Loaded kernels by context and name, for several threads.
///
/// A driver may wait for all streams while it loads a kernel. So a thread that lets a stream wait for another thread's work
/// loads what that work needs before; the other thread finds it here.
#[derive(Clone, Debug, Default)]
pub struct LoadedKernels(Arc<Mutex<ByName>>);

type ByName = HashMap<(Context, String), Result<Function, Error>>;

impl LoadedKernels {
    /// Those of the library's own contexts, which last as long as the process.
    pub(crate) fn of_own_contexts() -> LoadedKernels {
        static OWN: OnceLock<LoadedKernels> = OnceLock::new();
        OWN.get_or_init(LoadedKernels::default).clone()
    }

    /// Loads the kernel of an operation, unless it is here. Where there is none, the work itself will find that out.
    pub fn prepare(
        &self,
        driver: &dyn Driver,
        context: Context,
        op: ReductionOp,
        datatype: Datatype,
    ) {
        let _ = self.get(driver, context, name(op, datatype));
    }

    /// As [`prepare`](LoadedKernels::prepare), for a change.
    pub fn prepare_change(
        &self,
        driver: &dyn Driver,
        context: Context,
        change: Change,
        datatype: MapType,
    ) {
        let _ = self.get(driver, context, change_name(change, datatype));
    }

    /// Not locked while the driver loads: it may wait for work whose thread looks here.
    fn get(&self, driver: &dyn Driver, context: Context, name: String) -> Result<Function, Error> {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (context, name);
        if let Some(known) = all().get(&key) {
            return known.clone();
        }
        let loaded = driver.kernel(context, &CString::new(key.1.as_str()).unwrap_or_default());
        all().entry(key).or_insert(loaded).clone()
    }
}

/// What a [`Change`] is done to: the runtime's types, and 8-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// One of the runtime's.
    Core(Datatype),
    /// OCP's E4M3.
    Float8e4m3,
    /// OCP's E5M2.
    Float8e5m2,
}

impl From<Datatype> for MapType {
    fn from(datatype: Datatype) -> Self {
        MapType::Core(datatype)
    }
}

impl MapType {
    const fn size_bytes(self) -> usize {
        match self {
            MapType::Core(datatype) => datatype.size_bytes(),
            MapType::Float8e4m3 | MapType::Float8e5m2 => 1,
        }
    }

    /// In the names of kernels.
    const fn name(self) -> &'static str {
        match self {
            MapType::Core(datatype) => type_name(datatype),
            MapType::Float8e4m3 => "f8e4m3",
            MapType::Float8e5m2 => "f8e5m2",
        }
    }
}

/// The loaded kernels of a context.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    loaded: LoadedKernels,
    functions: HashMap<(ReductionOp, Datatype), Result<Function, Error>>,
    changes: HashMap<(&'static str, MapType), Result<Function, Error>>,
    copy: Option<Result<Function, Error>>,
}

impl Kernels {
    /// None yet but those that are shared.
    pub(crate) fn sharing(loaded: LoadedKernels) -> Kernels {
        Kernels { loaded, ..Kernels::default() }
    }

    /// Queues `into = inputs[0] op inputs[1] op ...` over `count` elements; a sum is divided by a number where there is one.
    /// `into` may be one of the first [`MOST_INPUTS`] inputs.
    ///
    /// # Errors
    /// No kernels, or a failed call.
    pub(crate) fn launch(
        &mut self,
        driver: &dyn Driver,
        (context, stream): (Context, Stream),
        Fold { op, datatype, divisor }: Fold,
        inputs: &[usize],
        into: usize,
        count: usize,
    ) -> Result<(), Error> {
        let function = self.function(driver, context, op, datatype)?;
        let last_function = match divisor {
            Some(by) => self.change(driver, context, Change::Divide(by), datatype.into())?,
            None => function,
        };
        let bytes = count * datatype.size_bytes();
        let blocks = bytes.div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS) as u32;
        let launch = |inputs: &[usize], is_last: bool| {
            let function = if is_last { last_function } else { function };
            let mut argument = argument(inputs, into, count);
            argument[11] = divisor.unwrap_or(0);
            let argument = &argument;
            driver.launch(context, stream, &Launch { function, blocks, threads: THREADS, argument })
        };
        let (first, rest) = inputs.split_at(inputs.len().min(MOST_INPUTS));
        launch(first, rest.is_empty())?;
        let mut rest = rest.chunks(MOST_INPUTS - 1).peekable();
        while let Some(more) = rest.next() {
            let mut inputs = vec![into];
            inputs.extend_from_slice(more);
            launch(&inputs, rest.peek().is_none())?;
        }
        Ok(())
    }

    /// Queues `into[i] = change(from[i])` over `count` elements.
    ///
    /// # Errors
    /// No kernels, or a failed call.
    pub(crate) fn map(
        &mut self,
        driver: &dyn Driver,
        (context, stream): (Context, Stream),
        (change, datatype): (Change, MapType),
        from: usize,
        into: usize,
        count: usize,
    ) -> Result<(), Error> {
        let function = self.change(driver, context, change, datatype)?;
        let mut argument = argument(&[from], into, count);
        argument[11] = match change {
            Change::Multiply(scalar) | Change::Divide(scalar) => scalar,
        };
        let blocks = (count * datatype.size_bytes()).div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS);
        let launch =
            Launch { function, blocks: blocks as u32, threads: THREADS, argument: &argument };
        driver.launch(context, stream, &launch)
    }

    /// Queues a copy of `len_bytes` between any memory that the device reaches.
    ///
    /// # Errors
    /// No kernels, or a failed call.
    pub(crate) fn copy(
        &mut self,
        driver: &dyn Driver,
        (context, stream): (Context, Stream),
        from: usize,
        into: usize,
        len_bytes: usize,
    ) -> Result<(), Error> {
        let function = self.copy_function(driver, context)?;
        let blocks = len_bytes.div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS) as u32;
        let argument = &argument(&[from], into, len_bytes);
        driver.launch(context, stream, &Launch { function, blocks, threads: THREADS, argument })
    }

    /// The kernel of copies, loaded at its first use.
    pub(crate) fn copy_function(
        &mut self,
        driver: &dyn Driver,
        context: Context,
    ) -> Result<Function, Error> {
        let load = || self.loaded.get(driver, context, COPY.to_owned());
        self.copy.get_or_insert_with(load).clone()
    }

    /// The kernel of a change, loaded at its first use.
    pub(crate) fn change(
        &mut self,
        driver: &dyn Driver,
        context: Context,
        change: Change,
        datatype: MapType,
    ) -> Result<Function, Error> {
        let op = change_op(change);
        let load = || self.loaded.get(driver, context, change_name(change, datatype));
        self.changes.entry((op, datatype)).or_insert_with(load).clone()
    }

    /// The kernel, loaded at its first use.
    pub(crate) fn function(
        &mut self,
        driver: &dyn Driver,
        context: Context,
        op: ReductionOp,
        datatype: Datatype,
    ) -> Result<Function, Error> {
        let load = || self.loaded.get(driver, context, name(op, datatype));
        self.functions.entry((op, datatype)).or_insert_with(load).clone()
    }
}

/// `HetcclReduceArgs` of `kernels/reduce.h`: eight inputs, output, count, number of inputs, scalar.
fn argument(inputs: &[usize], into: usize, count: usize) -> [u64; 12] {
    let mut words = [0; 12];
    for (word, &input) in words[..MOST_INPUTS].iter_mut().zip(inputs) {
        *word = input as u64;
    }
    (words[8], words[9], words[10]) = (into as u64, count as u64, inputs.len() as u64);
    words
}

const fn change_op(change: Change) -> &'static str {
    match change {
        Change::Multiply(_) => "premulsum",
        Change::Divide(_) => "avg",
    }
}

/// The name of a change's kernel.
fn change_name(change: Change, datatype: MapType) -> String {
    format!("hetccl_reduce_{}_{}", change_op(change), datatype.name())
}

/// A kernel's name.
fn name(op: ReductionOp, datatype: Datatype) -> String {
    let op = match op {
        ReductionOp::Sum => "sum",
        ReductionOp::Prod => "prod",
        ReductionOp::Min => "min",
        ReductionOp::Max => "max",
        ReductionOp::LogicalAnd => "land",
        ReductionOp::LogicalOr => "lor",
        ReductionOp::LogicalXor => "lxor",
        ReductionOp::BitAnd => "band",
        ReductionOp::BitOr => "bor",
        ReductionOp::BitXor => "bxor",
    };
    format!("hetccl_reduce_{op}_{}", type_name(datatype))
}

/// A datatype in the names of kernels.
const fn type_name(datatype: Datatype) -> &'static str {
    match datatype {
        Datatype::Int8 => "i8",
        Datatype::Int16 => "i16",
        Datatype::Int32 => "i32",
        Datatype::Int64 => "i64",
        Datatype::Uint8 => "u8",
        Datatype::Uint16 => "u16",
        Datatype::Uint32 => "u32",
        Datatype::Uint64 => "u64",
        Datatype::Float16 => "f16",
        Datatype::Bfloat16 => "bf16",
        Datatype::Float32 => "f32",
        Datatype::Float64 => "f64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_laid_out_as_the_kernels_want_it() {
        let words = argument(&[1, 2], 3, 4);
        assert_eq!(words, [1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 2, 0]);
        assert_eq!(size_of_val(&words), 96);
    }

    #[test]
    fn kernels_are_named_by_operation_and_type() {
        assert_eq!(name(ReductionOp::BitXor, Datatype::Uint16), "hetccl_reduce_bxor_u16");
        assert_eq!(name(ReductionOp::Sum, Datatype::Bfloat16), "hetccl_reduce_sum_bf16");
    }
}
