//! One file per collective: from MPI's arguments to a [`Prepared`](crate::prepared::Prepared) call.
//!
//! Open MPI's MPI layer has checked the arguments. A translation looks only at this rank's arguments and never at
//! what lies in the buffers.

mod allgather;
mod allgatherv;
mod allreduce;
mod alltoall;
mod alltoallv;
mod alltoallw;
mod arguments;
mod barrier;
mod bcast;
mod exscan;
mod gather;
mod gatherv;
mod neighbor_allgather;
mod neighbor_allgatherv;
mod neighbor_alltoall;
mod neighbor_alltoallv;
mod neighbor_alltoallw;
mod reduce;
mod reduce_local;
mod reduce_scatter;
mod reduce_scatter_block;
mod scan;
mod scatter;
mod scatterv;
mod whole_vector;

use hetccl_mca::sys;

pub(crate) use arguments::{MpiDatatype, MpiOp, shares_buffer};

/// Puts the three entries of each collective into a module's table.
macro_rules! slots {
    ($table:ident: $($module:ident => $blocking:ident, $nonblocking:ident, $persistent:ident;)*) => {
        $(
            $table.$blocking = Some($module::blocking);
            $table.$nonblocking = Some($module::nonblocking);
            $table.$persistent = Some($module::persistent);
        )*
    };
}

/// Fills a module's function table. Scan and exscan are not defined on inter-communicators, nor are neighbourhoods.
pub(crate) fn fill(table: &mut sys::mca_coll_base_module_t, inter: bool) {
    slots! { table:
        allgather => coll_allgather, coll_iallgather, coll_allgather_init;
        allgatherv => coll_allgatherv, coll_iallgatherv, coll_allgatherv_init;
        allreduce => coll_allreduce, coll_iallreduce, coll_allreduce_init;
        alltoall => coll_alltoall, coll_ialltoall, coll_alltoall_init;
        alltoallv => coll_alltoallv, coll_ialltoallv, coll_alltoallv_init;
        alltoallw => coll_alltoallw, coll_ialltoallw, coll_alltoallw_init;
        barrier => coll_barrier, coll_ibarrier, coll_barrier_init;
        bcast => coll_bcast, coll_ibcast, coll_bcast_init;
        gather => coll_gather, coll_igather, coll_gather_init;
        gatherv => coll_gatherv, coll_igatherv, coll_gatherv_init;
        reduce => coll_reduce, coll_ireduce, coll_reduce_init;
        reduce_scatter => coll_reduce_scatter, coll_ireduce_scatter, coll_reduce_scatter_init;
        reduce_scatter_block =>
            coll_reduce_scatter_block, coll_ireduce_scatter_block, coll_reduce_scatter_block_init;
        scatter => coll_scatter, coll_iscatter, coll_scatter_init;
        scatterv => coll_scatterv, coll_iscatterv, coll_scatterv_init;
    }
    if !inter {
        slots! { table:
            exscan => coll_exscan, coll_iexscan, coll_exscan_init;
            scan => coll_scan, coll_iscan, coll_scan_init;
            neighbor_allgather =>
                coll_neighbor_allgather, coll_ineighbor_allgather, coll_neighbor_allgather_init;
            neighbor_allgatherv =>
                coll_neighbor_allgatherv, coll_ineighbor_allgatherv, coll_neighbor_allgatherv_init;
            neighbor_alltoall =>
                coll_neighbor_alltoall, coll_ineighbor_alltoall, coll_neighbor_alltoall_init;
            neighbor_alltoallv =>
                coll_neighbor_alltoallv, coll_ineighbor_alltoallv, coll_neighbor_alltoallv_init;
            neighbor_alltoallw =>
                coll_neighbor_alltoallw, coll_ineighbor_alltoallw, coll_neighbor_alltoallw_init;
        }
    }
    table.coll_reduce_local = Some(reduce_local::reduce_local);
}
