//! Collectives by MPI: Open MPI's libmpi, with whatever components `mpirun --mca coll` names.

use std::ffi::{CStr, c_char, c_int, c_void};

use anyhow::{Context, Result, bail};

use super::Library;
use crate::call::{Call, Collective, Datatype, Op};
use crate::foreign::Foreign;
use crate::memory::Buffer;

type Handle = *mut c_void;
type Status = c_int;
type Pointer = *const c_void;
type Numbers = *const c_int;

/// Functions of MPI that take this many buffers, counts and numbers. Signatures: the MPI standard's C bindings.
struct Functions {
    allreduce: Reduction,
    reduce: unsafe extern "C" fn(Pointer, Pointer, c_int, Handle, Handle, c_int, Handle) -> Status,
    bcast: unsafe extern "C" fn(Pointer, c_int, Handle, c_int, Handle) -> Status,
    allgather: Blocks,
    alltoall: Blocks,
    gather: RootedBlocks,
    scatter: RootedBlocks,
    reduce_scatter_block: Reduction,
    allgatherv: unsafe extern "C" fn(
        Pointer,
        c_int,
        Handle,
        Pointer,
        Numbers,
        Numbers,
        Handle,
        Handle,
    ) -> Status,
    alltoallv: unsafe extern "C" fn(
        Pointer,
        Numbers,
        Numbers,
        Handle,
        Pointer,
        Numbers,
        Numbers,
        Handle,
        Handle,
    ) -> Status,
    gatherv: unsafe extern "C" fn(
        Pointer,
        c_int,
        Handle,
        Pointer,
        Numbers,
        Numbers,
        Handle,
        c_int,
        Handle,
    ) -> Status,
    scatterv: unsafe extern "C" fn(
        Pointer,
        Numbers,
        Numbers,
        Handle,
        Pointer,
        c_int,
        Handle,
        c_int,
        Handle,
    ) -> Status,
    reduce_scatter:
        unsafe extern "C" fn(Pointer, Pointer, Numbers, Handle, Handle, Handle) -> Status,
    scan: Reduction,
    exscan: Reduction,
    barrier: unsafe extern "C" fn(Handle) -> Status,
    sendrecv: SendReceive,
    split: unsafe extern "C" fn(Handle, c_int, c_int, *mut Handle) -> Status,
    free: unsafe extern "C" fn(*mut Handle) -> Status,
    finalize: unsafe extern "C" fn() -> Status,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> Status,
}

type Blocks =
    unsafe extern "C" fn(Pointer, c_int, Handle, Pointer, c_int, Handle, Handle) -> Status;
type RootedBlocks =
    unsafe extern "C" fn(Pointer, c_int, Handle, Pointer, c_int, Handle, c_int, Handle) -> Status;
type Reduction = unsafe extern "C" fn(Pointer, Pointer, c_int, Handle, Handle, Handle) -> Status;
type SendReceive = unsafe extern "C" fn(
    Pointer,
    c_int,
    Handle,
    c_int,
    c_int,
    Pointer,
    c_int,
    Handle,
    c_int,
    c_int,
    Handle,
    *mut c_void,
) -> Status;

/// Where blocks lie, as vector collectives take it.
#[derive(Default)]
struct Partition {
    counts: Vec<c_int>,
    displacements: Vec<c_int>,
}

impl Partition {
    fn new(blocks: &[usize]) -> Result<Partition> {
        let mut partition = Partition::default();
        let mut end = 0;
        for &count in blocks {
            let numbers = c_int::try_from(count).and_then(|n| Ok((n, c_int::try_from(end)?)));
            let (of_block, displacement) = numbers
                .context("MPI's counts and displacements are of 32 bits: take fewer bytes")?;
            partition.counts.push(of_block);
            partition.displacements.push(displacement);
            end += count;
        }
        Ok(partition)
    }
}

/// Both partitions of the call that was last.
struct Vectors {
    call: Call,
    given: Partition,
    got: Partition,
}

/// MPI, initialised.
pub(crate) struct Mpi {
    functions: Functions,
    library: Foreign,
    world: Handle,
    double: Handle,
    byte: Handle,
    max: Handle,
    vectors: Option<Vectors>,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Mpi {
    /// Loads libmpi and calls MPI_Init.
    pub(crate) fn new() -> Result<Mpi> {
        let library = Foreign::open(&["libmpi.so.40", "libmpi.so"], true)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the signatures are the standard's; Open MPI's handles are addresses of variables of these names.
        unsafe {
            let variable = |name: &str| library.get::<Handle>(name);
            let world = variable("ompi_mpi_comm_world").map_err(|error| {
                error.context(
                    "this libmpi is not Open MPI's, which is the one that hetccl is a component of",
                )
            })?;
            let init: unsafe extern "C" fn(*mut c_int, *mut c_void) -> Status =
                library.get("MPI_Init")?;
            let get_rank: unsafe extern "C" fn(Handle, *mut c_int) -> Status =
                library.get("MPI_Comm_rank")?;
            let get_size: unsafe extern "C" fn(Handle, *mut c_int) -> Status =
                library.get("MPI_Comm_size")?;
            let handler: unsafe extern "C" fn(Handle, Handle) -> Status =
                library.get("MPI_Comm_set_errhandler")?;
            let functions = Functions {
                allreduce: library.get("MPI_Allreduce")?,
                reduce: library.get("MPI_Reduce")?,
                bcast: library.get("MPI_Bcast")?,
                allgather: library.get("MPI_Allgather")?,
                alltoall: library.get("MPI_Alltoall")?,
                gather: library.get("MPI_Gather")?,
                scatter: library.get("MPI_Scatter")?,
                reduce_scatter_block: library.get("MPI_Reduce_scatter_block")?,
                allgatherv: library.get("MPI_Allgatherv")?,
                alltoallv: library.get("MPI_Alltoallv")?,
                gatherv: library.get("MPI_Gatherv")?,
                scatterv: library.get("MPI_Scatterv")?,
                reduce_scatter: library.get("MPI_Reduce_scatter")?,
                scan: library.get("MPI_Scan")?,
                exscan: library.get("MPI_Exscan")?,
                barrier: library.get("MPI_Barrier")?,
                sendrecv: library.get("MPI_Sendrecv")?,
                split: library.get("MPI_Comm_split")?,
                free: library.get("MPI_Comm_free")?,
                finalize: library.get("MPI_Finalize")?,
                error_string: library.get("MPI_Error_string")?,
            };
            if init(std::ptr::null_mut(), std::ptr::null_mut()) != 0 {
                bail!("MPI_Init failed; the lines above say why");
            }
            handler(world, variable("ompi_mpi_errors_return")?);
            get_rank(world, &mut rank);
            get_size(world, &mut size);
            let (double, byte) = (variable("ompi_mpi_double")?, variable("ompi_mpi_byte")?);
            let max = variable("ompi_mpi_op_max")?;
            let (rank, size) = (rank as usize, size as usize);
            Ok(Mpi { functions, library, world, double, byte, max, vectors: None, rank, size })
        }
    }

    /// Gives rank 0's bytes to all.
    pub(crate) fn share(&self, bytes: &mut [u8]) -> Result<()> {
        let (at, len) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
        // SAFETY: the buffer lives during the call.
        self.check(
            unsafe { (self.functions.bcast)(at, len, self.byte, 0, self.world) },
            "MPI_Bcast",
        )
    }

    /// Everybody's bytes, by rank; all give as many.
    pub(crate) fn gather(&self, own: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0_u8; own.len() * self.size];
        let (count, from, to) = (
            c_int::try_from(own.len())?,
            own.as_ptr().cast(),
            all.as_mut_ptr().cast_const().cast(),
        );
        let (f, byte) = (self.functions.allgather, self.byte);
        // SAFETY: both buffers are as long as the counts say.
        self.check(unsafe { f(from, count, byte, to, count, byte, self.world) }, "MPI_Allgather")?;
        Ok(all)
    }

    /// A communicator of the ranks that give the same color, by rank; none for ranks that give none. All ranks call.
    pub(crate) fn split(&self, color: Option<usize>) -> Result<Option<Group<'_>>> {
        // MPI_UNDEFINED of Open MPI.
        const UNDEFINED: c_int = -32766;
        let color = color.map_or(Ok(UNDEFINED), c_int::try_from)?;
        let mut comm = std::ptr::null_mut();
        // SAFETY: a place for the result.
        let status = unsafe {
            (self.functions.split)(self.world, color, c_int::try_from(self.rank)?, &mut comm)
        };
        self.check(status, "MPI_Comm_split")?;
        Ok((color != UNDEFINED).then_some(Group { mpi: self, comm }))
    }

    fn check(&self, status: Status, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let (mut text, mut len) = ([0 as c_char; 512], 0);
        // SAFETY: MPI_MAX_ERROR_STRING is at most 512; the text is ours, and zero at its end.
        let text = unsafe {
            (self.functions.error_string)(status, text.as_mut_ptr(), &mut len);
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        };
        bail!("{what}: {text}")
    }

    fn datatype(&self, datatype: Datatype) -> Result<Handle> {
        let name = match datatype {
            Datatype::Uint8 => "ompi_mpi_uint8_t",
            Datatype::Int32 => "ompi_mpi_int32_t",
            Datatype::Int64 => "ompi_mpi_int64_t",
            Datatype::Float => "ompi_mpi_float",
            Datatype::Double => "ompi_mpi_double",
            Datatype::Half | Datatype::Bfloat16 => {
                bail!("MPI has no type for {datatype:?}: take --via nccl, or another --datatype")
            }
        };
        // SAFETY: a variable; its address is the handle.
        unsafe { self.library.get(name) }
    }

    /// The partitions of a vector collective, made when it is another than before, so that they are not measured.
    fn vectors(&mut self, call: &Call) -> Result<&Vectors> {
        let vectors = match self.vectors.take() {
            Some(vectors) if vectors.call == *call => vectors,
            _ => Vectors {
                call: *call,
                given: Partition::new(&call.input_blocks())?,
                got: Partition::new(&call.output_blocks())?,
            },
        };
        Ok(self.vectors.insert(vectors))
    }

    /// A collective whose blocks differ.
    fn vector(&mut self, call: &Call, from: Pointer, to: Pointer) -> Result<Status> {
        let (datatype, op, world) = (self.datatype(call.datatype)?, self.op(call.op)?, self.world);
        let root = c_int::try_from(call.root)?;
        let Vectors { given, got, .. } = self.vectors(call)?;
        let numbers = |p: &Partition| (p.counts.as_ptr(), p.displacements.as_ptr());
        // Where a rank gives or gets one block or none, it is the first.
        let one = |p: &Partition| p.counts.first().copied().unwrap_or(0);
        let ((gives, gives_at), (gets, gets_at)) = (numbers(given), numbers(got));
        let (give, get) = (one(given), one(got));
        let f = &self.functions;
        // SAFETY: the signatures are the standard's; both buffers hold what `Call` says that this rank gives and gets, and the
        // partitions are those of the call, kept until another one is made.
        let status = unsafe {
            match call.collective {
                Collective::Allgatherv => {
                    (f.allgatherv)(from, give, datatype, to, gets, gets_at, datatype, world)
                }
                Collective::Alltoallv => (f.alltoallv)(
                    from, gives, gives_at, datatype, to, gets, gets_at, datatype, world,
                ),
                Collective::Gatherv => {
                    (f.gatherv)(from, give, datatype, to, gets, gets_at, datatype, root, world)
                }
                Collective::Scatterv => {
                    (f.scatterv)(from, gives, gives_at, datatype, to, get, datatype, root, world)
                }
                Collective::ReduceScatter => {
                    (f.reduce_scatter)(from, to, gives, datatype, op, world)
                }
                other => bail!("{} has equal blocks", other.name()),
            }
        };
        Ok(status)
    }

    fn op(&self, op: Op) -> Result<Handle> {
        let name = match op {
            Op::Sum => "ompi_mpi_op_sum",
            Op::Prod => "ompi_mpi_op_prod",
            Op::Max => "ompi_mpi_op_max",
            Op::Min => "ompi_mpi_op_min",
        };
        // SAFETY: a variable; its address is the handle.
        unsafe { self.library.get(name) }
    }
}

/// Some of the ranks.
pub(crate) struct Group<'a> {
    mpi: &'a Mpi,
    comm: Handle,
}

impl Group<'_> {
    /// Gives the first bytes of a member's buffer to all.
    pub(crate) fn bcast(&self, buffer: &Buffer, bytes: usize, root: usize) -> Result<()> {
        let (count, root) = (c_int::try_from(bytes)?, c_int::try_from(root)?);
        let at = buffer.pointer().cast_const();
        // SAFETY: the buffer is that long.
        let status =
            unsafe { (self.mpi.functions.bcast)(at, count, self.mpi.byte, root, self.comm) };
        self.mpi.check(status, "MPI_Bcast")
    }

    /// Until all have come.
    pub(crate) fn barrier(&self) -> Result<()> {
        // SAFETY: a communicator of ours.
        self.mpi.check(unsafe { (self.mpi.functions.barrier)(self.comm) }, "MPI_Barrier")
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `split`, freed once. What could be done about an error?
        unsafe { (self.mpi.functions.free)(&mut self.comm) };
    }
}

impl Library for Mpi {
    fn describe(&self) -> String {
        let version = std::env::var("OMPI_MCA_coll").unwrap_or_else(|_| "its default".into());
        format!("MPI through {}, collective components: {version}", self.library.name())
    }

    fn call(&mut self, call: &Call, input: &Buffer, output: &Buffer) -> Result<()> {
        let (from, to) = (input.pointer().cast_const(), output.pointer().cast_const());
        if call.collective.is_vector() {
            let status = self.vector(call, from, to)?;
            return self.check(status, &call.collective.name());
        }
        let f = &self.functions;
        let (datatype, op, world) = (self.datatype(call.datatype)?, self.op(call.op)?, self.world);
        let (count, root) = (c_int::try_from(call.count)?, c_int::try_from(call.root)?);
        let next = ((call.rank + 1) % call.size) as c_int;
        let before = ((call.rank + call.size - 1) % call.size) as c_int;
        // SAFETY: the signatures are the standard's, and both buffers hold what `Call` says that this rank gives and gets.
        let status = unsafe {
            let blocks = |f: Blocks| f(from, count, datatype, to, count, datatype, world);
            let rooted =
                |f: RootedBlocks| f(from, count, datatype, to, count, datatype, root, world);
            let reduction = |f: Reduction| f(from, to, count, datatype, op, world);
            match call.collective {
                Collective::Allreduce => reduction(f.allreduce),
                Collective::Reduce => (f.reduce)(from, to, count, datatype, op, root, world),
                Collective::Bcast => {
                    let buffer = if call.rank == call.root { from } else { to };
                    (f.bcast)(buffer, count, datatype, root, world)
                }
                Collective::Allgather => blocks(f.allgather),
                Collective::Alltoall => blocks(f.alltoall),
                Collective::Gather => rooted(f.gather),
                Collective::Scatter => rooted(f.scatter),
                Collective::ReduceScatterBlock => reduction(f.reduce_scatter_block),
                Collective::Scan => reduction(f.scan),
                Collective::Exscan => reduction(f.exscan),
                Collective::Barrier => (f.barrier)(world),
                Collective::Sendrecv => {
                    let ignore = std::ptr::null_mut();
                    (f.sendrecv)(
                        from, count, datatype, next, 0, to, count, datatype, before, 0, world,
                        ignore,
                    )
                }
                vector => bail!("{} has blocks of several lengths", vector.name()),
            }
        };
        self.check(status, &call.collective.name())
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn largest(&mut self, number: f64) -> Result<f64> {
        let (number, mut result) = (number, 0_f64);
        let (from, to) = ((&raw const number).cast(), (&raw mut result).cast_const().cast());
        // SAFETY: one double each.
        let status =
            unsafe { (self.functions.allreduce)(from, to, 1, self.double, self.max, self.world) };
        self.check(status, "MPI_Allreduce")?;
        Ok(result)
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: once, after everything else.
        self.check(unsafe { (self.functions.finalize)() }, "MPI_Finalize")
    }
}
