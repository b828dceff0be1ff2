/* What the other ranks of a job hear when one fails in a collective.
 *
 *   failures KIND COLLECTIVE VICTIM [MEMORY [FORM]]
 *
 * KIND: killed, stopped (a process), mismatch (another collective), operation, datatype, root, count (another of these), late
 * (the victim comes after 3 s), gone (the victim's buffer is no memory of its device any more).
 * FORM: blocking, nonblocking, persistent. Every other rank prints
 *   rank R: class C after T ms
 * when its call has failed, and `rank R: ok after T ms` when it has not. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "memory.h"
#include "persistent.h"
#include "together.h"

enum { N = 4096, MOST_RANKS = 16 };

enum form { BLOCKING, NONBLOCKING, PERSISTENT };
static enum form form;

/* A collective in the form asked for, to its end: its names as in MPI_Name and MPI_Iname, and its arguments. */
#define TRY(Name, lower, ...)                                                                                           \
    if (0 == strcmp(name, #lower)) {                                                                                    \
        MPI_Request request;                                                                                            \
        if (BLOCKING == form) {                                                                                         \
            return MPI_##Name(__VA_ARGS__);                                                                             \
        }                                                                                                               \
        return finish(NONBLOCKING == form ? MPI_I##lower(__VA_ARGS__, &request) : MADE_BEFORE(Name, __VA_ARGS__), &request); \
    }
#define MADE_BEFORE(Name, ...) MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &request)

static int finish(int code, MPI_Request *request)
{
    if (MPI_SUCCESS == code && PERSISTENT == form) {
        code = MPI_Start(request);
    }
    return MPI_SUCCESS == code ? MPI_Wait(request, MPI_STATUS_IGNORE) : code;
}

static int call(const char *name, void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    int counts[MOST_RANKS], places[MOST_RANKS], ranks;
    MPI_Comm_size(comm, &ranks);
    for (int i = 0; i < ranks; ++i) {
        counts[i] = n;
        places[i] = i * n;
    }
    TRY(Barrier, barrier, comm)
    TRY(Bcast, bcast, in, n, type, root, comm)
    TRY(Allreduce, allreduce, in, out, n, type, op, comm)
    TRY(Reduce, reduce, in, out, n, type, op, root, comm)
    TRY(Scan, scan, in, out, n, type, op, comm)
    TRY(Exscan, exscan, in, out, n, type, op, comm)
    TRY(Allgather, allgather, in, n, type, out, n, type, comm)
    TRY(Allgatherv, allgatherv, in, n, type, out, counts, places, type, comm)
    TRY(Gather, gather, in, n, type, out, n, type, root, comm)
    TRY(Gatherv, gatherv, in, n, type, out, counts, places, type, root, comm)
    TRY(Scatter, scatter, in, n, type, out, n, type, root, comm)
    TRY(Scatterv, scatterv, in, counts, places, type, out, n, type, root, comm)
    TRY(Alltoall, alltoall, in, n, type, out, n, type, comm)
    TRY(Alltoallv, alltoallv, in, counts, places, type, out, counts, places, type, comm)
    TRY(Reduce_scatter, reduce_scatter, in, out, counts, type, op, comm)
    TRY(Reduce_scatter_block, reduce_scatter_block, in, out, n, type, op, comm)
    printf("FAILED no collective %s\n", name);
    return MPI_ERR_OTHER;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks, class = MPI_SUCCESS;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *kind = argv[1], *name = argv[2];
    const int victim = atoi(argv[3]), is_victim = rank == victim;
    const enum memory memory = memory_of_rank(argc > 4 ? argv[4] : "host", rank);
    if (argc > 5) {
        form = 0 == strcmp(argv[5], "nonblocking") ? NONBLOCKING : 0 == strcmp(argv[5], "persistent") ? PERSISTENT : BLOCKING;
    }
    const size_t bytes = (size_t) N * MOST_RANKS * 8;
    void *in = memory_alloc(memory, bytes), *out = memory_alloc(memory, bytes), *zeros = calloc(1, bytes);
    memory_put(memory, in, zeros, bytes);
    memory_put(memory, out, zeros, bytes);
    /* The same call once with all there: what is tested is not the first contact. */
    if (MPI_SUCCESS != call(name, in, out, N, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD)) {
        printf("FAILED the call with all ranks on rank %d\n", rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int pid = (int) getpid(), pids[MOST_RANKS];
    MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Op op = MPI_SUM;
    MPI_Datatype type = MPI_DOUBLE;
    int root = 0, n = N;
    if (is_victim) {
        if (0 == strcmp(kind, "killed")) raise(SIGKILL);
        if (0 == strcmp(kind, "stopped")) raise(SIGSTOP);
        if (0 == strcmp(kind, "late")) sleep(3);
        if (0 == strcmp(kind, "mismatch")) name = strcmp(name, "barrier") ? "barrier" : "bcast";
        if (0 == strcmp(kind, "operation")) op = MPI_MAX;
        if (0 == strcmp(kind, "datatype")) type = MPI_INT64_T;
        if (0 == strcmp(kind, "root")) root = 1;
        if (0 == strcmp(kind, "count")) n = N / 2;
        if (0 == strcmp(kind, "gone")) memory_free(memory, in);
    }
    const double start = MPI_Wtime();
    const int code = call(name, in, out, n, type, op, root, MPI_COMM_WORLD);
    const double ms = (MPI_Wtime() - start) * 1e3;
    MPI_Error_class(code, &class);
    char line[128];
    const int len = MPI_SUCCESS == code
        ? snprintf(line, sizeof line, "rank %d: ok after %.0f ms\n", rank, ms)
        : snprintf(line, sizeof line, "rank %d: class %d after %.0f ms\n", rank, class, ms);
    if (write(1, line, (size_t) len) != len) return 2;
    /* MPI_Finalize would wait for the victim. */
    if (strcmp(kind, "late")) {
        const int is_lost = 0 == strcmp(kind, "killed") || 0 == strcmp(kind, "stopped");
        if (0 == strcmp(kind, "stopped") && rank == (0 == victim)) {
            sleep(1); /* the others are to see it stopped, not dead */
            kill(pids[victim], SIGKILL);
        }
        leave_together(is_lost ? ranks - 1 : ranks);
    }
    MPI_Finalize();
    return 0;
}
