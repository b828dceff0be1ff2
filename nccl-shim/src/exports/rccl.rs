//! What RCCL adds to NCCL's interface.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{CommHandle, StreamHandle};
use crate::api::collective;

const MSCCL: &str = "hetccl does not run algorithms of MSCCL files: unset RCCL_MSCCL_ENABLE, and use the collectives";

crate::entries! {
    own {}
    both {}
    handed {
        fn ncclAllToAll(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            collective::alltoall(send, recv, count, datatype, comm, stream)
        }
        fn ncclAllToAllv(send: *const c_void, send_counts: *const usize, send_displs: *const usize, recv: *mut c_void, recv_counts: *const usize, recv_displs: *const usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            // SAFETY: the caller's arrays have an entry a rank, as RCCL's documentation asks.
            unsafe { collective::alltoallv(send, send_counts, send_displs, recv, recv_counts, recv_displs, datatype, comm, stream) }
        }
        fn ncclAlltoAllv(send: *const c_void, send_counts: *const usize, send_displs: *const usize, recv: *mut c_void, recv_counts: *const usize, recv_displs: *const usize, datatype: c_int, comm: CommHandle, stream: StreamHandle) by comm {
            // SAFETY: the caller's arrays have an entry a rank, as RCCL's documentation asks.
            unsafe { collective::alltoallv(send, send_counts, send_displs, recv, recv_counts, recv_displs, datatype, comm, stream) }
        }
    }
    refused {
        fn ncclAllReduceWithBias(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: CommHandle, stream: StreamHandle, bias: *const c_void) by comm =
            "hetccl's communicators have no allreduce with a bias: use ncclAllReduce, and add the bias in a kernel";
        fn mscclRunAlgo(send: *const c_void, send_counts: *const usize, send_displs: *const usize, recv: *mut c_void, recv_counts: *const usize, recv_displs: *const usize, count: usize, datatype: c_int, root: c_int, peer: c_int, op: c_int, algorithm: u64, comm: CommHandle, stream: StreamHandle) by comm = MSCCL;
        fn _Z12ncclCommDumpP8ncclCommRSt13unordered_mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES7_St4hashIS7_ESt8equal_toIS7_ESaISt4pairIKS7_S7_EEE(comm: CommHandle, map: *mut c_void) by comm =
            "hetccl's communicators have nothing to dump: set NCCL_DEBUG=INFO";
    }
    without {
        fn mscclLoadAlgo(path: *const c_char, algorithm: *mut u64, rank: c_int) = MSCCL;
        fn mscclUnloadAlgo(algorithm: u64) = MSCCL;
    }
    plain {}
}
