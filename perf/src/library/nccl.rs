//! Collectives by NCCL's interface: hetccl's libnccl.so.2 and librccl.so.1, or a library that the user names.

use std::ffi::{CStr, c_char, c_int, c_void};

use anyhow::{Result, bail};

use super::Library;
use super::mpi::Mpi;
use crate::call::{Call, Collective, Datatype, Op};
use crate::foreign::Foreign;
use crate::memory::{Buffer, Place};

type Status = c_int;
type Comm = *mut c_void;
type Stream = *mut c_void;
type Pointer = *const c_void;

/// `ncclInProgress`.
const IN_PROGRESS: Status = 7;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// A new id. This process serves those who come with it, so it must live until all have met.
pub(crate) fn unique_id(library: &Foreign) -> Result<UniqueId> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: NCCL's documented signature; the result is ours.
    let status = unsafe {
        let get: unsafe extern "C" fn(*mut UniqueId) -> Status = library.get("ncclGetUniqueId")?;
        get(&mut id)
    };
    check(library, status, "ncclGetUniqueId")?;
    Ok(id)
}

fn check(library: &Foreign, status: Status, what: &str) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: NCCL's documented signatures; both return text that lives as long as the library.
    let text = unsafe {
        let name: unsafe extern "C" fn(Status) -> *const c_char =
            library.get("ncclGetErrorString")?;
        let last: Result<unsafe extern "C" fn(Comm) -> *const c_char> =
            library.get("ncclGetLastError");
        let last = last.map_or(std::ptr::null(), |last| last(std::ptr::null_mut()));
        let words = |text: *const c_char| {
            if text.is_null() {
                String::new()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        format!("{}: {}", words(name(status)), words(last))
    };
    bail!("{what}: {text}")
}

/// A communicator of all ranks.
pub(crate) struct Nccl<'a> {
    library: Foreign,
    place: &'a Place,
    comm: Comm,
    async_error: unsafe extern "C" fn(Comm, *mut Status) -> Status,
    stream: Stream,
    number: Buffer<'a>,
    /// Under mpirun, who made the ranks meet.
    mpi: Option<Mpi>,
}

impl<'a> Nccl<'a> {
    pub(crate) fn new(
        library: Foreign,
        place: &'a Place,
        id: UniqueId,
        rank: usize,
        size: usize,
        mpi: Option<Mpi>,
    ) -> Result<Nccl<'a>> {
        let mut comm = std::ptr::null_mut();
        // SAFETY: NCCL's documented signature; the result is ours.
        let status = unsafe {
            let init: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> Status =
                library.get("ncclCommInitRank")?;
            init(&mut comm, size as c_int, id, rank as c_int)
        };
        check(&library, status, "ncclCommInitRank")?;
        // SAFETY: NCCL's documented signature.
        let async_error = unsafe { library.get("ncclCommGetAsyncError")? };
        Ok(Nccl {
            async_error,
            library,
            place,
            comm,
            stream: place.stream()?,
            number: place.buffer(8)?,
            mpi,
        })
    }

    fn queue(&self, call: &Call, from: Pointer, to: Pointer) -> Result<()> {
        let (count, root) = (call.count, call.root as c_int);
        let (datatype, op) = (datatype(call.datatype), op(call.op));
        let (comm, stream, library) = (self.comm, self.stream, &self.library);
        let has_root =
            matches!(call.collective, Collective::Bcast | Collective::Gather | Collective::Scatter);
        let name = match call.collective {
            Collective::Allreduce => "ncclAllReduce",
            Collective::ReduceScatterBlock => "ncclReduceScatter",
            Collective::Reduce => "ncclReduce",
            Collective::Bcast => "ncclBroadcast",
            Collective::Allgather => "ncclAllGather",
            Collective::Alltoall => "ncclAlltoAll",
            Collective::Gather => "ncclGather",
            Collective::Scatter => "ncclScatter",
            Collective::Sendrecv => return self.ring(call, from, to),
            other => bail!("NCCL's interface has no {}: take --via mpi", other.name()),
        };
        // SAFETY: NCCL's documented signatures; the buffers hold what `Call` says.
        let status = unsafe {
            if matches!(call.collective, Collective::Reduce) {
                let f: unsafe extern "C" fn(
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    c_int,
                    c_int,
                    Comm,
                    Stream,
                ) -> Status = library.get(name)?;
                f(from, to, count, datatype, op, root, comm, stream)
            } else if call.collective.reduces() {
                let f: unsafe extern "C" fn(
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    c_int,
                    Comm,
                    Stream,
                ) -> Status = library.get(name)?;
                f(from, to, count, datatype, op, comm, stream)
            } else if has_root {
                let f: unsafe extern "C" fn(
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    c_int,
                    Comm,
                    Stream,
                ) -> Status = library.get(name)?;
                f(from, to, count, datatype, root, comm, stream)
            } else {
                let f: unsafe extern "C" fn(
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    Comm,
                    Stream,
                ) -> Status = library.get(name)?;
                f(from, to, count, datatype, comm, stream)
            }
        };
        check(library, status, name)
    }

    fn ring(&self, call: &Call, from: Pointer, to: Pointer) -> Result<()> {
        type Message = unsafe extern "C" fn(Pointer, usize, c_int, c_int, Comm, Stream) -> Status;
        let next = ((call.rank + 1) % call.size) as c_int;
        let before = ((call.rank + call.size - 1) % call.size) as c_int;
        let (count, datatype, library) = (call.count, datatype(call.datatype), &self.library);
        // SAFETY: NCCL's documented signatures; the buffers hold what `Call` says.
        unsafe {
            let start: unsafe extern "C" fn() -> Status = library.get("ncclGroupStart")?;
            let end: unsafe extern "C" fn() -> Status = library.get("ncclGroupEnd")?;
            let (send, receive): (Message, Message) =
                (library.get("ncclSend")?, library.get("ncclRecv")?);
            check(library, start(), "ncclGroupStart")?;
            check(library, send(from, count, datatype, next, self.comm, self.stream), "ncclSend")?;
            check(
                library,
                receive(to, count, datatype, before, self.comm, self.stream),
                "ncclRecv",
            )?;
            check(library, end(), "ncclGroupEnd")
        }
    }
}

/// `ncclDataType_t`.
const fn datatype(datatype: Datatype) -> c_int {
    match datatype {
        Datatype::Uint8 => 1,
        Datatype::Int32 => 2,
        Datatype::Int64 => 4,
        Datatype::Half => 6,
        Datatype::Float => 7,
        Datatype::Double => 8,
        Datatype::Bfloat16 => 9,
    }
}

/// `ncclRedOp_t`.
const fn op(op: Op) -> c_int {
    match op {
        Op::Sum => 0,
        Op::Prod => 1,
        Op::Max => 2,
        Op::Min => 3,
    }
}

impl Library for Nccl<'_> {
    fn describe(&self) -> String {
        format!("NCCL's interface through {}", self.library.name())
    }

    fn call(&mut self, call: &Call, input: &Buffer, output: &Buffer) -> Result<()> {
        self.queue(call, input.pointer(), output.pointer())
    }

    /// As frameworks do: a communicator that has failed never lets its stream go on, and says so only when asked.
    fn wait(&mut self) -> Result<()> {
        while !self.place.done(self.stream)? {
            let mut status = 0;
            // SAFETY: NCCL's documented signature; the result is ours.
            let asked = unsafe { (self.async_error)(self.comm, &mut status) };
            check(&self.library, asked, "ncclCommGetAsyncError")?;
            if status != IN_PROGRESS {
                check(&self.library, status, "a collective failed")?;
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn largest(&mut self, number: f64) -> Result<f64> {
        self.number.put(&number.to_ne_bytes())?;
        let at = self.number.pointer().cast_const();
        let call = Call {
            collective: Collective::Allreduce,
            datatype: Datatype::Double,
            op: Op::Max,
            root: 0,
            rank: 0,
            size: 1,
            count: 1,
        };
        self.queue(&call, at, at)?;
        self.wait()?;
        let mut result = [0; 8];
        self.number.get(&mut result)?;
        Ok(f64::from_ne_bytes(result))
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: NCCL's documented signature; once, after everything else.
        let status = unsafe {
            let destroy: unsafe extern "C" fn(Comm) -> Status =
                self.library.get("ncclCommDestroy")?;
            destroy(self.comm)
        };
        check(&self.library, status, "ncclCommDestroy")?;
        self.mpi.as_mut().map_or(Ok(()), Library::finish)
    }
}
