/* The 17 collectives on real buffers, in each form, as functions that run one, check one and say what is right.
 *
 * Element i of rank r's contribution is r + 1 + i % 7, so that every sum and every place has a value of its own. */
#ifndef HETCCL_CASES_H
#define HETCCL_CASES_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.h"
#include "persistent.h"

static int ranks, me;
static double *in, *out;
static int *counts, *starts, *bytes;
static MPI_Datatype *types;

/* What comes before and after a collective's name in each form. */
static const char *const before[FORMS] = {"", "i", ""}, *const after[FORMS] = {"", "", "_init"};

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
        bytes[r] = starts[r] * (int) sizeof(double);
        types[r] = MPI_DOUBLE;
    }
}

#define PERSISTENT_CALL(Name, ...) MPI_##Name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, request)

/* One collective in the form asked for: its name as in MPI_Name and MPI_Iname, and its arguments up to the communicator. */
#define CALL(Name, name, ...)                                                                                           \
    switch (form) {                                                                                                     \
    case BLOCKING: MPI_##Name(__VA_ARGS__, comm); break;                                                                \
    case NONBLOCKING: MPI_I##name(__VA_ARGS__, comm, request); break;                                                   \
    default: PERSISTENT_CALL(Name, __VA_ARGS__); break;                                                                 \
    }                                                                                                                   \
    break

/* Calls a collective; `request` is for the forms that have one. */
static void call(enum kind kind, enum form form, size_t n, MPI_Request *request)
{
    const int all = (int) n, per = (int) (n / ranks);
    const MPI_Comm comm = MPI_COMM_WORLD;
    switch (kind) {
    case ALLGATHER: CALL(Allgather, allgather, in, per, MPI_DOUBLE, out, per, MPI_DOUBLE);
    case ALLGATHERV: CALL(Allgatherv, allgatherv, in, per, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE);
    case ALLREDUCE: CALL(Allreduce, allreduce, in, out, all, MPI_DOUBLE, MPI_SUM);
    case ALLTOALL: CALL(Alltoall, alltoall, in, per, MPI_DOUBLE, out, per, MPI_DOUBLE);
    case ALLTOALLV: CALL(Alltoallv, alltoallv, in, counts, starts, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE);
    case ALLTOALLW: CALL(Alltoallw, alltoallw, in, counts, bytes, types, out, counts, bytes, types);
    case BARRIER:
        switch (form) {
        case BLOCKING: MPI_Barrier(comm); break;
        case NONBLOCKING: MPI_Ibarrier(comm, request); break;
#ifdef OPEN_MPI
        default: MPI_Barrier_init(comm, MPI_INFO_NULL, request); break;
#else
        default: MPI_Barrier_init(comm, MPI_INFO_NULL, request); break;
#endif
        }
        break;
    case BCAST: CALL(Bcast, bcast, in, all, MPI_DOUBLE, 0);
    case EXSCAN: CALL(Exscan, exscan, in, out, all, MPI_DOUBLE, MPI_SUM);
    case GATHER: CALL(Gather, gather, in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, 0);
    case GATHERV: CALL(Gatherv, gatherv, in, per, MPI_DOUBLE, out, counts, starts, MPI_DOUBLE, 0);
    case REDUCE: CALL(Reduce, reduce, in, out, all, MPI_DOUBLE, MPI_SUM, 0);
    case REDUCE_SCATTER: CALL(Reduce_scatter, reduce_scatter, in, out, counts, MPI_DOUBLE, MPI_SUM);
    case REDUCE_SCATTER_BLOCK: CALL(Reduce_scatter_block, reduce_scatter_block, in, out, per, MPI_DOUBLE, MPI_SUM);
    case SCAN: CALL(Scan, scan, in, out, all, MPI_DOUBLE, MPI_SUM);
    case SCATTER: CALL(Scatter, scatter, in, per, MPI_DOUBLE, out, per, MPI_DOUBLE, 0);
    case SCATTERV: CALL(Scatterv, scatterv, in, counts, starts, MPI_DOUBLE, out, per, MPI_DOUBLE, 0);
    case KINDS: break;
    }
}

/* Runs a collective to its end; `persistent` has been made beforehand where the form is that. */
static void run(enum kind kind, enum form form, size_t n, MPI_Request *persistent)
{
    MPI_Request request;
    if (PERSISTENT == form) {
        MPI_Start(persistent);
        MPI_Wait(persistent, MPI_STATUS_IGNORE);
        return;
    }
    call(kind, form, n, &request);
    if (NONBLOCKING == form) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Element i of a rank's result after `run` on `n` elements; whether there is one. */
static int expected(enum kind kind, size_t n, size_t i, double *value)
{
    const size_t per = n / ranks, from = i / per, at = i % per;
    switch (kind) {
    case ALLREDUCE: *value = sum_of(ranks, i); return 1;
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

#define SLOW_SECONDS 1e-3
enum { FEW_ROUNDS = 11 };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Checks one collective and size, measures it, and prints a line of JSON on rank 0. Whether it was right everywhere. */
static int measure(enum kind kind, enum form form, size_t size, int rounds)
{
    size_t n = size / sizeof(double) / ranks * ranks;
    n = n < (size_t) ranks ? (size_t) ranks : n;
    MPI_Request persistent = MPI_REQUEST_NULL;
    prepare(n);
    if (PERSISTENT == form) {
        call(kind, form, n, &persistent);
    }
    run(kind, form, n, &persistent);
    int right = check(kind, n), all;
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    double begun = MPI_Wtime(), spent;
    run(kind, form, n, &persistent);
    run(kind, form, n, &persistent);
    begun = MPI_Wtime() - begun;
    MPI_Allreduce(&begun, &spent, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    /* A library that takes milliseconds a call, as one does that keeps its core while others need it, need not do so
     * a thousand times to have a median. */
    if (spent > 4 * SLOW_SECONDS && rounds > FEW_ROUNDS) {
        rounds = FEW_ROUNDS;
    }
    double *times = malloc(sizeof(double) * rounds);
    for (int i = 0; i < rounds / 10 + 2; ++i) {
        run(kind, form, n, &persistent);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < rounds; ++i) {
        double start = MPI_Wtime();
        run(kind, form, n, &persistent);
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
        printf("{\"collective\": \"%s%s%s\", \"bytes\": %zu, \"us\": %.3f, \"ok\": %s, \"ranks\": %d}\n", before[form],
               names[kind], after[form], BARRIER == kind ? 0 : n * sizeof(double), slowest, all ? "true" : "false", ranks);
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
    bytes = malloc(sizeof(int) * ranks);
    types = malloc(sizeof(MPI_Datatype) * ranks);
}

static void finish(void)
{
    free(in);
    free(out);
    free(counts);
    free(starts);
    free(bytes);
    free(types);
    MPI_Finalize();
}

#endif
