//! Collectives, messages and reduction operations.

use std::ffi::{c_int, c_void};

use crate::abi::{CommHandle, StreamHandle};
use crate::api::collective;

crate::entries! {
    own {
        fn ncclAllReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::allreduce(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::reduce(send, recv, count, datatype, op, root, comm, stream)
        }
        fn ncclReduceScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::reduce_scatter(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclBroadcast(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::broadcast(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclBcast(buffer: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::broadcast(buffer, buffer, count, datatype, root, comm, stream)
        }
        fn ncclAllGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::allgather(send, recv, count, datatype, comm, stream)
        }
        fn ncclAlltoAll(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::alltoall(send, recv, count, datatype, comm, stream)
        }
        fn ncclGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::gather(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::scatter(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclSend(buffer: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::send(buffer, count, datatype, peer, comm, stream)
        }
        fn ncclRecv(buffer: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::recv(buffer, count, datatype, peer, comm, stream)
        }
        fn ncclRedOpCreatePreMulSum(op: *mut c_int, scalar: *mut c_void, datatype: c_int, residence: c_int, comm: CommHandle) {
            // SAFETY: the caller's pointers are what NCCL's documentation asks for.
            unsafe { collective::create_premulsum(op, scalar, datatype, residence, comm) }
        }
        fn ncclRedOpDestroy(op: c_int, comm: CommHandle) {
            collective::destroy_operation(op, comm)
        }
        fn ncclGroupStart() {
            crate::api::group_start()
        }
        fn ncclGroupEnd() {
            crate::api::group_end()
        }
    }
    plain {}
    refused {
        ncclAllReduceConfig ncclReduceConfig ncclReduceScatterConfig ncclBroadcastConfig ncclAllGatherConfig
        ncclAlltoAllConfig ncclGatherConfig ncclScatterConfig ncclGroupSimulateEnd ncclPutSignal ncclSignal ncclWaitSignal
    }
}
