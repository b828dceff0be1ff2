/* The collectives of MPI, and the forms in which they are called. */
#ifndef HETCCL_KINDS_H
#define HETCCL_KINDS_H

enum kind {
    ALLGATHER, ALLGATHERV, ALLREDUCE, ALLTOALL, ALLTOALLV, ALLTOALLW, BARRIER, BCAST, EXSCAN, GATHER, GATHERV, REDUCE,
    REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, SCATTER, SCATTERV, KINDS
};

static const char *const names[KINDS] = {
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw", "barrier", "bcast", "exscan", "gather",
    "gatherv", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "scatter", "scatterv",
};

/* Waited for, started and waited for, made beforehand and then the same. */
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

#endif
