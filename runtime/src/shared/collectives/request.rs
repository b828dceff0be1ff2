//! Front ends' requests through a lane: any collective, as the schedule engine would get it.

use std::ptr;

use hetccl_core::{Block, Call, Collective, Layout, Reduction, Region};

use super::{Lane, both};
use crate::host::ExternalReducer;
use crate::process::Request;
use crate::shared::fold::Fold;
use crate::shared::lane::{LaneError, is_for_lanes};

#[both]
impl Lane {
    /// Whether a call goes through the lane; the same on all ranks.
    pub fn takes(&self, request: &Request<'_>) -> bool {
        is_for_lanes(request.call, request.element_bytes, self.most_element_bytes())
    }

    /// Runs a call that the lane [takes](Lane::takes), to its end.
    ///
    /// # Errors
    /// Ranks differ in length; a process that has ended.
    ///
    /// # Safety
    /// The request's regions are host memory, and what MPI demands of the buffers of collectives holds.
    pub async unsafe fn run(
        &mut self,
        request: &Request<'_>,
        external: &dyn ExternalReducer,
    ) -> Result<(), LaneError> {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match request.reduction {
                Some(Reduction::Predefined(op, datatype)) => {
                    self.reducing(request, &(op, datatype)).await
                }
                Some(Reduction::External(number)) => {
                    self.reducing(request, &(external, number, request.element_bytes)).await
                }
                None => self.moving(request).await,
            }
        }
    }

    /// # Safety
    /// As for [`run`](Lane::run).
    async unsafe fn reducing(
        &mut self,
        request: &Request<'_>,
        fold: &impl Fold,
    ) -> Result<(), LaneError> {
        let call = request.call;
        let output = write(request.output);
        let input = if call.in_place { output.cast_const() } else { read(request.input) };
        let (count, root) = (call.count(), call.root_rank());
        // SAFETY: the caller's promise.
        unsafe {
            match call.collective {
                Collective::Allreduce => self.allreduce(input, output, count, fold).await,
                Collective::Reduce => self.reduce(input, output, count, fold, root).await,
                Collective::Scan => self.scan(input, output, count, fold, true).await,
                Collective::Exscan => self.scan(input, output, count, fold, false).await,
                Collective::ReduceScatter => {
                    self.reduce_scatter(input, output, |rank| call.send_block(rank).len, fold).await
                }
                _ => self.reduce_scatter(input, output, |_| count, fold).await,
            }
        }
    }

    /// # Safety
    /// As for [`run`](Lane::run).
    async unsafe fn moving(&mut self, request: &Request<'_>) -> Result<(), LaneError> {
        let call = request.call;
        let (input, output) = (read(request.input), write(request.output));
        let (root, at_root) = (call.root_rank(), call.root_rank() == call.rank());
        let uniform = matches!(call.layout, Layout::Uniform { .. });
        let sent = |rank: usize| run_from(input, call.send_block(rank));
        let received = |rank: usize| run_into(output, call.recv_block(rank));
        // SAFETY: the caller's promise.
        unsafe {
            match call.collective {
                Collective::Barrier => self.barrier().await,
                Collective::Bcast => {
                    let buffer = if at_root { request.input } else { request.output };
                    self.bcast(write(buffer), buffer.len_bytes, root).await
                }
                Collective::Gather | Collective::Gatherv => {
                    let own = if call.in_place { NOTHING } else { sent_block(call, input) };
                    self.gather(own, received, root, uniform).await
                }
                Collective::Allgather | Collective::Allgatherv => {
                    let own = if call.in_place { NOTHING } else { sent_block(call, input) };
                    self.allgather(own, received).await
                }
                Collective::Scatter | Collective::Scatterv => {
                    let own = match (call.in_place, &call.layout) {
                        (true, _) => (ptr::null_mut(), 0),
                        (_, Layout::Uniform { count, .. }) => (output, *count),
                        (_, Layout::Blocks { recv, .. }) => run_into(output, recv[0]),
                    };
                    self.scatter(own, sent, root, uniform).await
                }
                _ if call.in_place => {
                    let from = |rank: usize| {
                        let (at, len) = received(rank);
                        (at.cast_const(), len)
                    };
                    self.alltoall(from, received, uniform).await
                }
                _ => self.alltoall(sent, received, uniform).await,
            }
        }
    }
}

const NOTHING: (*const u8, usize) = (ptr::null(), 0);

/// The one block that a rank sends.
fn sent_block(call: &Call, input: *const u8) -> (*const u8, usize) {
    match &call.layout {
        Layout::Uniform { count, .. } => (input, *count),
        Layout::Blocks { send, .. } => run_from(input, send[0]),
    }
}

fn run_from(base: *const u8, block: Block) -> (*const u8, usize) {
    (base.wrapping_add(block.start), block.len)
}

fn run_into(base: *mut u8, block: Block) -> (*mut u8, usize) {
    (base.wrapping_add(block.start), block.len)
}

fn read(region: Region) -> *const u8 {
    ptr::with_exposed_provenance(region.address.0)
}

fn write(region: Region) -> *mut u8 {
    ptr::with_exposed_provenance_mut(region.address.0)
}
