/* The 17 collectives on real buffers, as functions that run one, check one and say what is right.
 *
 * Element i of rank r's contribution is r + 1 + i % 7, so that every sum and every place has a value of its own. */
#ifndef HETCCL_CASES_H
#define HETCCL_CASES_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "persistent.h"

static int ranks, me;
static double *in, *out;
static int *counts, *starts;

enum kind {
    ALLGATHER, ALLGATHERV, ALLREDUCE, ALLTOALL, ALLTOALLV, ALLTOALLW, BARRIER, BCAST, EXSCAN, GATHER, GATHERV, REDUCE,
    REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, SCATTER, SCATTERV, IALLREDUCE, ALLREDUCE_INIT, KINDS
};

static const char *const names[KINDS] = {
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw", "barrier", "bcast", "exscan", "gather",
    "gatherv", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "scatter", "scatterv", "iallreduce",
    "allreduce_init",
};

static double contribution(int rank, size_t i) { return rank + 1 + (double) (i % 7); }

/* The sum of the contributions of ranks 0 to n - 1. */
static double sum_of(int n, size_t i) { return n * (n + 1) / 2.0 + n * (double) (i % 7); }

/* Buffers of n elements, n a multiple of the number of ranks. */
static void prepare(size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        in[i] = contribution(me, i);
        out[i] = -1;
    }
    for (int r = 0; r < ranks; ++r) {
        counts[r] = (int) (n / ranks);
        starts[r] = r * counts[r];
    }
}

static void run(enum kind kind, size_t n, MPI_Request *persistent)
{
    const int all = (int) n, per = (int) (n / ranks);
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request request;
    switch (kind) {
    case ALLGATHER: MPI_Allgather(in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, comm); break;
    case ALLGATHERV: MPI_Allgatherv(in, per, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE, comm); break;
    case ALLREDUCE: MPI_Allreduce(in, out, all, MPI_DOUBLE, MPI_SUM, comm); break;
    case ALLTOALL: MPI_Alltoall(in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, comm); break;
    case ALLTOALLV:
        MPI_Alltoallv(in, counts, starts, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE, comm);
        break;
    case ALLTOALLW: {
        MPI_Datatype types[ranks];
        int bytes[ranks];
        for (int r = 0; r < ranks; ++r) {
            types[r] = MPI_DOUBLE;
            bytes[r] = starts[r] * (int) sizeof(double);
        }
        MPI_Alltoallw(in, counts, bytes, types, out, counts, bytes, types, comm);
        break;
    }
    case BARRIER: MPI_Barrier(comm); break;
    case BCAST: MPI_Bcast(in, all, MPI_DOUBLE, 0, comm); break;
    case EXSCAN: MPI_Exscan(in, out, all, MPI_DOUBLE, MPI_SUM, comm); break;
    case GATHER: MPI_Gather(in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, 0, comm); break;
    case GATHERV: MPI_Gatherv(in, per, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE, 0, comm); break;
    case REDUCE: MPI_Reduce(in, out, all, MPI_DOUBLE, MPI_SUM, 0, comm); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter(in, out, counts, MPI_DOUBLE, MPI_SUM, comm); break;
    case REDUCE_SCATTER_BLOCK: MPI_Reduce_scatter_block(in, out, per, MPI_DOUBLE, MPI_SUM, comm); break;
    case SCAN: MPI_Scan(in, out, all, MPI_DOUBLE, MPI_SUM, comm); break;
    case SCATTER: MPI_Scatter(in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, 0, comm); break;
    case SCATTERV: MPI_Scatterv(in, counts, starts, MPI_DOUBLE, out, per, MPI_DOUBLE, 0, comm); break;
    case IALLREDUCE:
        MPI_Iallreduce(in, out, all, MPI_DOUBLE, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case ALLREDUCE_INIT:
        MPI_Start(persistent);
        MPI_Wait(persistent, MPI_STATUS_IGNORE);
        break;
    case KINDS: break;
    }
}

/* Element i of a rank's result after `run` on `n` elements; whether there is one. */
static int expected(enum kind kind, size_t n, size_t i, double *value)
{
    const size_t per = n / ranks, from = i / per, at = i % per;
    switch (kind) {
    case ALLREDUCE: case IALLREDUCE: case ALLREDUCE_INIT: *value = sum_of(ranks, i); return 1;
    case REDUCE: *value = sum_of(ranks, i); return 0 == me;
    case SCAN: *value = sum_of(me + 1, i); return 1;
    case EXSCAN: *value = sum_of(me, i); return me > 0;
    case ALLGATHER: case ALLGATHERV: *value = contribution((int) from, at); return 1;
    case GATHER: case GATHERV: *value = contribution((int) from, at); return 0 == me;
    case ALLTOALL: case ALLTOALLV: case ALLTOALLW:
        *value = contribution((int) from, (size_t) me * per + at);
        return 1;
    case REDUCE_SCATTER: case REDUCE_SCATTER_BLOCK: *value = sum_of(ranks, (size_t) me * per + i); return i < per;
    case SCATTER: case SCATTERV: *value = contribution(0, (size_t) me * per + i); return i < per;
    case BCAST: *value = contribution(0, i); return 1;
    default: return 0;
    }
}

static int check(enum kind kind, size_t n)
{
    const double *result = BCAST == kind ? in : out;
    for (size_t i = 0; i < n; ++i) {
        double value;
        if (expected(kind, n, i, &value) && result[i] != value) {
            fprintf(stderr, "rank %d: %s of %zu bytes: element %zu is %g and should be %g\n", me, names[kind], n * 8, i,
                    result[i], value);
            return 0;
        }
    }
    return 1;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Checks one collective and size, measures it, and prints a line of JSON on rank 0. Whether it was right everywhere. */
static int measure(enum kind kind, size_t bytes, int rounds)
{
    size_t n = bytes / sizeof(double) / ranks * ranks;
    n = n < (size_t) ranks ? (size_t) ranks : n;
    MPI_Request persistent = MPI_REQUEST_NULL;
    prepare(n);
#ifdef OPEN_MPI
    if (ALLREDUCE_INIT == kind) {
        MPI_Allreduce_init(in, out, (int) n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &persistent);
    }
#endif
    run(kind, n, &persistent);
    int right = check(kind, n), all;
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    double *times = malloc(sizeof(double) * rounds);
    for (int i = 0; i < rounds / 10 + 2; ++i) {
        run(kind, n, &persistent);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < rounds; ++i) {
        double start = MPI_Wtime();
        run(kind, n, &persistent);
        times[i] = MPI_Wtime() - start;
    }
    qsort(times, rounds, sizeof(double), compare_doubles);
    double median = times[rounds / 2] * 1e6, slowest;
    free(times);
    if (MPI_REQUEST_NULL != persistent) {
        MPI_Request_free(&persistent);
    }
    MPI_Reduce(&median, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (0 == me) {
        printf("{\"collective\": \"%s\", \"bytes\": %zu, \"us\": %.3f, \"ok\": %s, \"ranks\": %d}\n", names[kind],
               BARRIER == kind ? 0 : n * sizeof(double), slowest, all ? "true" : "false", ranks);
        fflush(stdout);
    }
    return all;
}

static void start(int *argc, char ***argv, size_t most_bytes)
{
    MPI_Init(argc, argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    size_t n = most_bytes / sizeof(double) + (size_t) ranks;
    in = malloc(n * sizeof(double));
    out = malloc(n * sizeof(double));
    counts = malloc(sizeof(int) * ranks);
    starts = malloc(sizeof(int) * ranks);
}

static void finish(void)
{
    free(in);
    free(out);
    free(counts);
    free(starts);
    MPI_Finalize();
}

#endif
