//! Collectives and messages: arguments checked and queued.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use hetccl_core::Collective;
use hetccl_runtime::Direction;

use crate::abi::{
    AVERAGE, CONFIG_MAGIC, CollConfig, CommHandle, Element, OPERATIONS, SCALAR_DEVICE, StreamHandle,
};
use crate::comm::{self, Comm};
use crate::operation::{CollectiveWork, Reduce, Scalar, Work};
use crate::{Failure, group};

/// Numbers of operations that programs make start here.
const FIRST_OWN: usize = 5;
/// `ncclScalarHostImmediate`.
const SCALAR_HOST: c_int = 1;

type Send = *const c_void;
type Recv = *mut c_void;

/// A call before it is checked.
struct Asked {
    collective: Collective,
    send: usize,
    recv: usize,
    count: usize,
    datatype: c_int,
    op: Option<c_int>,
    root: Option<c_int>,
}

impl Asked {
    fn new(collective: Collective, send: Send, recv: Recv, count: usize, datatype: c_int) -> Asked {
        let (send, recv) = (send.expose_provenance(), recv.expose_provenance());
        Asked { collective, send, recv, count, datatype, op: None, root: None }
    }

    fn queue(self, handle: CommHandle, stream: StreamHandle) -> Result<(), Failure> {
        noted(|| {
            let comm = comm::find(handle)?;
            let work = self.check(&comm)?;
            group::add(comm, stream.expose_provenance(), work)
        })
    }

    fn check(self, comm: &Arc<Comm>) -> Result<Option<Work>, Failure> {
        let live = comm.working()?;
        let element = Element::from_number(self.datatype)?;
        let root = self.root.map(|root| rank(root, live.size, "the root")).transpose()?;
        let reduce = self.op.map(|op| reduction(comm, op, self.datatype)).transpose()?;
        let whole = self
            .count
            .checked_mul(element.size_bytes())
            .and_then(|bytes| bytes.checked_mul(live.size));
        if whole.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Failure::argument(format!("a count of {} is too large", self.count)));
        }
        let at_root = root.is_none_or(|root| root == live.rank);
        let needs_send = match self.collective {
            Collective::Bcast | Collective::Scatter => at_root,
            _ => true,
        };
        let needs_recv = match self.collective {
            Collective::Reduce | Collective::Gather => at_root,
            _ => true,
        };
        if self.count > 0 && ((needs_send && self.send == 0) || (needs_recv && self.recv == 0)) {
            return Err(Failure::argument(format!(
                "a buffer of {} is null on rank {}",
                self.collective.name(),
                live.rank
            )));
        }
        Ok((self.count > 0).then_some(Work::Collective(CollectiveWork {
            collective: self.collective,
            root,
            count: self.count,
            element,
            reduce,
            send: self.send,
            recv: self.recv,
        })))
    }
}

/// Looks at the configuration of one collective. What it says of NCCL's kernels means nothing here.
///
/// # Safety
/// Null, or a structure of as many bytes as its first field says.
pub unsafe fn check_config(config: *const CollConfig) -> Result<(), Failure> {
    if config.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise: every version has these.
    let (size, magic, algorithms, force) =
        unsafe { ((*config).size, (*config).magic, (*config).algorithms, (*config).force) };
    if magic != CONFIG_MAGIC || size < std::mem::offset_of!(CollConfig, tag) {
        return Err(Failure::argument(
            "the configuration was not made with NCCL_COLLCONFIG_INITIALIZER (its magic number or size is wrong)",
        ));
    }
    // SAFETY: a string of the program's.
    let asks = !algorithms.is_null() && unsafe { algorithms.read() } != 0;
    if asks && force != 0 {
        return Err(Failure::usage(
            "hetccl does not have NCCL's algorithms to choose from: leave algSelection empty, or set forceAlgSelection to 0",
        ));
    }
    // SAFETY: the structure is large enough to have it.
    if size >= size_of::<CollConfig>() && !unsafe { (*config).launched }.is_null() {
        return Err(Failure::usage(
            "hetccl launches no kernel whose start could be recorded: leave launchCompletionEvent empty, and record an event \
             on the stream after the call",
        ));
    }
    Ok(())
}

/// Lets an open group know of a failure.
pub(super) fn noted(body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    body().inspect_err(group::note)
}

pub(super) fn rank(number: c_int, size: usize, what: &str) -> Result<usize, Failure> {
    let found = usize::try_from(number).ok().filter(|&rank| rank < size);
    found.ok_or_else(|| {
        Failure::argument(format!("{what} is {number}; ranks go from 0 to {}", size - 1))
    })
}

/// Bytes of a buffer whose bytes go to an offset in another.
pub(super) fn bytes_at(
    address: usize,
    count: usize,
    element: Element,
    offset_bytes: usize,
) -> Result<usize, Failure> {
    let len_bytes = count
        .checked_mul(element.size_bytes())
        .filter(|bytes| bytes.checked_add(offset_bytes).is_some())
        .ok_or_else(|| Failure::argument(format!("a count of {count} is too large")))?;
    if count > 0 && address == 0 {
        return Err(Failure::argument("the buffer is null"));
    }
    Ok(len_bytes)
}

fn reduction(comm: &Comm, op: c_int, datatype: c_int) -> Result<Reduce, Failure> {
    let unknown =
        || Failure::argument(format!("{op} is not a reduction operation of this communicator"));
    let index = usize::try_from(op).map_err(|_| unknown())?;
    if let Some(&op) = OPERATIONS.get(index) {
        return Ok(Reduce::Plain(op));
    }
    if op == AVERAGE {
        return match &comm.live()?.weights {
            Some(weights) => weights.average(Element::from_number(datatype)?),
            None => Ok(Reduce::Average),
        };
    }
    let operations =
        comm.live()?.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (reduce, of) = operations.get(index - FIRST_OWN).copied().flatten().ok_or_else(unknown)?;
    if of != datatype {
        return Err(Failure::argument(format!(
            "operation {op} was made for datatype {of}, not for {datatype}"
        )));
    }
    Ok(reduce)
}

pub fn allreduce(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    op: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked { op: Some(op), ..Asked::new(Collective::Allreduce, send, recv, count, datatype) }
        .queue(comm, stream)
}

pub fn reduce(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    op: c_int,
    root: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked {
        op: Some(op),
        root: Some(root),
        ..Asked::new(Collective::Reduce, send, recv, count, datatype)
    }
    .queue(comm, stream)
}

pub fn reduce_scatter(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    op: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked {
        op: Some(op),
        ..Asked::new(Collective::ReduceScatterBlock, send, recv, count, datatype)
    }
    .queue(comm, stream)
}

pub fn broadcast(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked { root: Some(root), ..Asked::new(Collective::Bcast, send, recv, count, datatype) }
        .queue(comm, stream)
}

pub fn allgather(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked::new(Collective::Allgather, send, recv, count, datatype).queue(comm, stream)
}

pub fn alltoall(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked::new(Collective::Alltoall, send, recv, count, datatype).queue(comm, stream)
}

pub fn gather(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked { root: Some(root), ..Asked::new(Collective::Gather, send, recv, count, datatype) }
        .queue(comm, stream)
}

pub fn scatter(
    send: Send,
    recv: Recv,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    Asked { root: Some(root), ..Asked::new(Collective::Scatter, send, recv, count, datatype) }
        .queue(comm, stream)
}

pub fn send(
    buffer: Send,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    message(Direction::Send, buffer.expose_provenance(), count, datatype, peer, comm, stream)
}

pub fn recv(
    buffer: Recv,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    message(Direction::Receive, buffer.expose_provenance(), count, datatype, peer, comm, stream)
}

fn message(
    direction: Direction,
    address: usize,
    count: usize,
    datatype: c_int,
    peer: c_int,
    handle: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    noted(|| {
        let comm = comm::find(handle)?;
        let live = comm.working()?;
        let element = Element::from_number(datatype)?;
        let peer = rank(peer, live.size, "the peer")?;
        let len_bytes = bytes_at(address, count, element, 0)?;
        let work = (count > 0).then_some(Work::Message { direction, peer, address, len_bytes });
        group::add(comm, stream.expose_provenance(), work)
    })
}

pub unsafe fn alltoallv(
    send: Send,
    send_counts: *const usize,
    send_displs: *const usize,
    recv: Recv,
    recv_counts: *const usize,
    recv_displs: *const usize,
    datatype: c_int,
    handle: CommHandle,
    stream: StreamHandle,
) -> Result<(), Failure> {
    let size = comm::find(handle)?.working()?.size;
    let arrays = [send_counts, send_displs, recv_counts, recv_displs];
    if arrays.iter().any(|array| array.is_null()) {
        return Err(Failure::argument("an array of counts or displacements is null"));
    }
    // SAFETY: the caller's promise: an entry a rank.
    let [send_counts, send_displs, recv_counts, recv_displs] =
        arrays.map(|array| unsafe { std::slice::from_raw_parts(array, size) });
    let element_bytes = Element::from_number(datatype)?.size_bytes();
    group::start();
    let queued = (0..size).try_for_each(|peer| {
        let from = send.wrapping_byte_add(send_displs[peer] * element_bytes);
        self::send(from, send_counts[peer], datatype, peer as c_int, handle, stream)?;
        let into = recv.wrapping_byte_add(recv_displs[peer] * element_bytes);
        self::recv(into, recv_counts[peer], datatype, peer as c_int, handle, stream)
    });
    let ended = group::end();
    queued.and(ended)
}

pub unsafe fn create_premulsum(
    place: *mut c_int,
    scalar: *mut c_void,
    datatype: c_int,
    residence: c_int,
    handle: CommHandle,
) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let live = comm.working()?;
    let element = Element::from_number(datatype)?;
    if place.is_null() || scalar.is_null() {
        return Err(Failure::argument("the place for the operation or the scalar is null"));
    }
    let scalar = match residence {
        SCALAR_DEVICE => Scalar::Device(scalar.expose_provenance()),
        SCALAR_HOST => {
            let mut bytes = [0u8; 8];
            // SAFETY: the caller's promise: an element of the datatype in host memory.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    scalar.cast::<u8>(),
                    bytes.as_mut_ptr(),
                    element.size_bytes(),
                );
            }
            Scalar::Host(u64::from_le_bytes(bytes))
        }
        other => {
            return Err(Failure::argument(format!(
                "the scalar's residence is {other}; 0: device, 1: host"
            )));
        }
    };
    let mut operations = live.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let free = operations.iter().position(Option::is_none).unwrap_or_else(|| {
        operations.push(None);
        operations.len() - 1
    });
    operations[free] = Some((Reduce::MultiplyAndSum(scalar), datatype));
    // SAFETY: not null; the caller promises room for it.
    unsafe { place.write((FIRST_OWN + free) as c_int) };
    Ok(())
}

pub fn destroy_operation(op: c_int, handle: CommHandle) -> Result<(), Failure> {
    let comm = comm::find(handle)?;
    let mut operations =
        comm.live()?.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let index = usize::try_from(op).ok().and_then(|op| op.checked_sub(FIRST_OWN));
    match index.and_then(|index| operations.get_mut(index)).and_then(Option::take) {
        Some(_) => Ok(()),
        None => Err(Failure::argument(format!(
            "{op} is not an operation that this communicator has made"
        ))),
    }
}
