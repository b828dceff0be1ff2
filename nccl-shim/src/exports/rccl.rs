//! What RCCL adds to NCCL's interface.

use std::ffi::{c_int, c_void};

use crate::abi::{CommHandle, StreamHandle};
use crate::api::collective;

crate::entries! {
    own {
        fn ncclAllToAll(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) {
            collective::alltoall(send, recv, count, datatype, comm, stream)
        }
        fn ncclAllToAllv(send: *const c_void, send_counts: *const usize, send_displs: *const usize, recv: *mut c_void, recv_counts: *const usize, recv_displs: *const usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) {
            // SAFETY: the caller's arrays have an entry a rank, as RCCL's documentation asks.
            unsafe { collective::alltoallv(send, send_counts, send_displs, recv, recv_counts, recv_displs, datatype, comm, stream) }
        }
        fn ncclAlltoAllv(send: *const c_void, send_counts: *const usize, send_displs: *const usize, recv: *mut c_void, recv_counts: *const usize, recv_displs: *const usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) {
            // SAFETY: the caller's arrays have an entry a rank, as RCCL's documentation asks.
            unsafe { collective::alltoallv(send, send_counts, send_displs, recv, recv_counts, recv_displs, datatype, comm, stream) }
        }
    }
    plain {}
    refused {
        ncclAllReduceWithBias mscclLoadAlgo mscclRunAlgo mscclUnloadAlgo
        _Z12ncclCommDumpP8ncclCommRSt13unordered_mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES7_St4hashIS7_ESt8equal_toIS7_ESaISt4pairIKS7_S7_EEE
    }
}
