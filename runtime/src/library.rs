//! Steps that the vendor's library does inside this rank's vendor group, on a stream of their own.
//!
//! They come after the copies and reductions before them by an event, and in the order in which they were started; the host does
//! not wait between them. Operands in host memory, as operations on staged buffers have them, go through blocks of pinned memory and of
//! the device: a copy from pageable memory could wait for what the stream waits for.

use std::cell::RefCell;

use hetccl_core::{
    Address, GroupCall, GroupCollective, Handle, MemoryType, Reduction, Region, TransportError,
};
use hetccl_gpu::{Block, CclComm, Gpus, Lane, Order};
use slab::Slab;

/// Handles of these steps; the others are the GPUs'.
const OURS: u64 = 1 << 62;

/// This rank's communicator in the vendor's library.
#[derive(Debug)]
pub struct GroupLibrary {
    comm: CclComm,
    lane: Lane,
}

/// A step under way.
#[derive(Debug)]
struct Step {
    mark: Handle,
    blocks: Vec<Block>,
    /// Pinned memory with the result, and where in host memory it belongs.
    store: Option<(Region, Region)>,
}

/// The steps under way in a process.
#[derive(Debug, Default)]
pub(crate) struct LibrarySteps(Slab<Step>);

impl LibrarySteps {
    /// Whether a handle is of one of these steps.
    pub(crate) fn is_ours(handle: Handle) -> bool {
        handle.0 & OURS != 0
    }
}

impl GroupLibrary {
    /// A communicator of all ranks of the vendor, whose work goes to a lane of the process.
    pub fn new(comm: CclComm, lane: Lane) -> GroupLibrary {
        GroupLibrary { comm, lane }
    }

    /// Other ranks may not come any more: see [`CclComm::give_up`].
    pub(crate) fn give_up(&self) {
        self.comm.give_up();
    }

    /// For reports: the library's file and version.
    pub fn name(&self) -> String {
        let library = self.comm.library();
        let version = hetccl_gpu::version_text(library.version());
        format!("{} ({version})", library.path().display())
    }

    /// Queues a step.
    pub(crate) fn start(
        &self,
        gpus: &RefCell<Gpus>,
        steps: &mut LibrarySteps,
        call: GroupCall,
        from: Region,
        into: Region,
        copy: impl FnOnce(Region, Region),
    ) -> Result<Handle, TransportError> {
        let mut gpus = gpus.borrow_mut();
        let stream = gpus.library_stream(self.lane)?;
        let mut blocks = Vec::new();
        let queued = self.queue(&mut gpus, stream, call, [from, into], &mut blocks, copy);
        match queued {
            Ok((mark, store)) => {
                let number = steps.0.insert(Step { mark, blocks, store });
                Ok(Handle(OURS | number as u64))
            }
            Err(error) => {
                blocks.into_iter().for_each(|block| gpus.put(block));
                Err(error)
            }
        }
    }

    fn queue(
        &self,
        gpus: &mut Gpus,
        stream: hetccl_gpu::Stream,
        call: GroupCall,
        [from, into]: [Region; 2],
        blocks: &mut Vec<Block>,
        copy: impl FnOnce(Region, Region),
    ) -> Result<(Handle, Option<(Region, Region)>), TransportError> {
        let lane = self.lane;
        let mut on_device = |gpus: &mut Gpus, region: Region| -> Result<Region, TransportError> {
            if region.memory != MemoryType::Host || region.len_bytes == 0 {
                return Ok(region);
            }
            let block = gpus.take_device(lane, region.len_bytes)?;
            let there = block.region(region.len_bytes);
            blocks.push(block);
            Ok(there)
        };
        let input = on_device(gpus, from)?;
        let output = on_device(gpus, into)?;
        if input.address != from.address {
            let block = gpus.take_pinned(lane, from.len_bytes)?;
            let pinned = block.region(from.len_bytes);
            blocks.push(block);
            copy(from, pinned);
            gpus.queue_copy(lane, Order::Library, pinned, input)?;
        }
        // A rank that has no part in one of them gives the other, as for an operation in place.
        let address = |region: Region, other: Region| {
            let Address(address) = if region.len_bytes == 0 { other } else { region }.address;
            address
        };
        let (input_address, output_address) = (address(input, output), address(output, input));
        let count = count(call, from.len_bytes, into.len_bytes);
        self.comm
            .queue(stream, call, input_address, output_address, count)
            .map_err(|error| failed(error.to_string()))?;
        let mut store = None;
        if output.address != into.address {
            let block = gpus.take_pinned(lane, into.len_bytes)?;
            let pinned = block.region(into.len_bytes);
            blocks.push(block);
            gpus.queue_copy(lane, Order::Library, output, pinned)?;
            store = Some((pinned, into));
        }
        Ok((gpus.mark(lane, Order::Library)?, store))
    }

    /// Whether a step has ended. The result that has yet to be copied in host memory, when it has.
    pub(crate) fn test(
        &self,
        gpus: &RefCell<Gpus>,
        steps: &mut LibrarySteps,
        handle: Handle,
        copy: impl FnOnce(Region, Region),
    ) -> Result<bool, TransportError> {
        let number = (handle.0 & !OURS) as usize;
        let Some(step) = steps.0.get(number) else { return Ok(true) };
        let mut gpus = gpus.borrow_mut();
        if !gpus.test(step.mark)? {
            self.comm.check().map_err(|error| failed(error.to_string()))?;
            return Ok(false);
        }
        self.comm.ended();
        let Step { blocks, store, .. } = steps.0.remove(number);
        if let Some((from, into)) = store {
            copy(from, into);
        }
        blocks.into_iter().for_each(|block| gpus.put(block));
        Ok(true)
    }
}

/// Elements of a rank's part or of the vector, or bytes where nothing is combined.
fn count(call: GroupCall, from_bytes: usize, into_bytes: usize) -> usize {
    let element_bytes = match call.reduction {
        Some(Reduction::Predefined(_, datatype)) => datatype.size_bytes(),
        _ => 1,
    };
    match call.collective {
        GroupCollective::ReduceScatter => into_bytes / element_bytes,
        GroupCollective::Reduce => from_bytes / element_bytes,
        GroupCollective::Allgather => from_bytes,
        GroupCollective::Bcast => from_bytes.max(into_bytes),
    }
}

fn failed(reason: String) -> TransportError {
    TransportError::Failed {
        operation: "a collective of the vendor's library",
        native_code: 0,
        reason,
    }
}
