//! Collectives, messages and reduction operations.

use std::ffi::{c_int, c_void};

use crate::abi::{CollConfig, CommHandle, StreamHandle, WaitDescription};
use crate::api::{collective, window};

crate::entries! {
    own {}
    both {
        fn ncclGroupStart() {
            crate::api::group_start(crate::LIBRARY)
        }
        fn ncclGroupEnd() {
            crate::api::group_end(crate::LIBRARY)
        }
    }
    handed {
        fn ncclAllReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::allreduce(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::reduce(send, recv, count, datatype, op, root, comm, stream)
        }
        fn ncclReduceScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::reduce_scatter(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclBroadcast(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::broadcast(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclBcast(buffer: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::broadcast(buffer, buffer, count, datatype, root, comm, stream)
        }
        fn ncclAllGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::allgather(send, recv, count, datatype, comm, stream)
        }
        fn ncclAlltoAll(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::alltoall(send, recv, count, datatype, comm, stream)
        }
        fn ncclGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::gather(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::scatter(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclSend(buffer: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::send(buffer, count, datatype, peer, comm, stream)
        }
        fn ncclRecv(buffer: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::recv(buffer, count, datatype, peer, comm, stream)
        }
        fn ncclRedOpCreatePreMulSum(op: *mut c_int, scalar: *mut c_void, datatype: c_int, residence: c_int, comm: CommHandle) by comm {
            // SAFETY: the caller's pointers are what NCCL's documentation asks for.
            unsafe { collective::create_premulsum(op, scalar, datatype, residence, comm) }
        }
        fn ncclRedOpDestroy(op: c_int, comm: CommHandle) by comm {
            collective::destroy_operation(op, comm)
        }
        fn ncclAllReduceConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::allreduce(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclReduceConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::reduce(send, recv, count, datatype, op, root, comm, stream)
        }
        fn ncclReduceScatterConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::reduce_scatter(send, recv, count, datatype, op, comm, stream)
        }
        fn ncclBroadcastConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::broadcast(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclAllGatherConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::allgather(send, recv, count, datatype, comm, stream)
        }
        fn ncclAlltoAllConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::alltoall(send, recv, count, datatype, comm, stream)
        }
        fn ncclGatherConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::gather(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclScatterConfig(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle, config: *const CollConfig) by comm {
            // SAFETY: the caller's pointer is what NCCL's documentation asks for.
            unsafe { collective::check_config(config)? };
            collective::scatter(send, recv, count, datatype, root, comm, stream)
        }
        fn ncclPutSignal(buffer: *const c_void, count: usize, datatype: c_int, peer: c_int, window: *mut c_void, offset: usize, signal: c_int, context: c_int, flags: u32, comm: CommHandle, stream: StreamHandle) by comm {
            window::put_signal(buffer, count, datatype, peer, window, offset, signal, context, flags, comm, stream)
        }
        fn ncclSignal(peer: c_int, signal: c_int, context: c_int, flags: u32, comm: CommHandle, stream: StreamHandle) by comm {
            window::signal(peer, signal, context, flags, comm, stream)
        }
        fn ncclWaitSignal(len: c_int, descriptions: *mut WaitDescription, comm: CommHandle, stream: StreamHandle) by comm {
            // SAFETY: the caller's array has so many entries, as NCCL's documentation asks.
            unsafe { window::wait_signals(len, descriptions, comm, stream) }
        }
    }
    refused {}
    without {
        fn ncclGroupSimulateEnd(info: *mut c_void) =
            "hetccl does not estimate how long a group takes: end it with ncclGroupEnd and measure";
    }
    plain {}
}
