/* What the other ranks of a job hear when one fails in a collective.
 *
 *   failures KIND COLLECTIVE VICTIM [MEMORY]
 *
 * KIND: killed, stopped (a process), mismatch (another collective), operation, datatype, root, count (another of these), late
 * (the victim comes after 3 s), gone (the victim's buffer is no memory of its device any more). Every other rank prints
 *   rank R: class C after T ms
 * when its call has failed, and `rank R: ok after T ms` when it has not. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "memory.h"

enum { N = 4096, MOST_RANKS = 16 };

static int call(const char *name, void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    int counts[MOST_RANKS], places[MOST_RANKS], ranks;
    MPI_Comm_size(comm, &ranks);
    for (int i = 0; i < ranks; ++i) {
        counts[i] = n;
        places[i] = i * n;
    }
    if (0 == strcmp(name, "barrier")) return MPI_Barrier(comm);
    if (0 == strcmp(name, "bcast")) return MPI_Bcast(in, n, type, root, comm);
    if (0 == strcmp(name, "allreduce")) return MPI_Allreduce(in, out, n, type, op, comm);
    if (0 == strcmp(name, "reduce")) return MPI_Reduce(in, out, n, type, op, root, comm);
    if (0 == strcmp(name, "scan")) return MPI_Scan(in, out, n, type, op, comm);
    if (0 == strcmp(name, "exscan")) return MPI_Exscan(in, out, n, type, op, comm);
    if (0 == strcmp(name, "allgather")) return MPI_Allgather(in, n, type, out, n, type, comm);
    if (0 == strcmp(name, "allgatherv")) return MPI_Allgatherv(in, n, type, out, counts, places, type, comm);
    if (0 == strcmp(name, "gather")) return MPI_Gather(in, n, type, out, n, type, root, comm);
    if (0 == strcmp(name, "gatherv")) return MPI_Gatherv(in, n, type, out, counts, places, type, root, comm);
    if (0 == strcmp(name, "scatter")) return MPI_Scatter(in, n, type, out, n, type, root, comm);
    if (0 == strcmp(name, "scatterv")) return MPI_Scatterv(in, counts, places, type, out, n, type, root, comm);
    if (0 == strcmp(name, "alltoall")) return MPI_Alltoall(in, n, type, out, n, type, comm);
    if (0 == strcmp(name, "alltoallv"))
        return MPI_Alltoallv(in, counts, places, type, out, counts, places, type, comm);
    if (0 == strcmp(name, "reduce_scatter")) return MPI_Reduce_scatter(in, out, counts, type, op, comm);
    if (0 == strcmp(name, "reduce_scatter_block")) return MPI_Reduce_scatter_block(in, out, n, type, op, comm);
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
    /* MPI_Finalize would wait for the victim; a rank that leaves before the others have their error would be one more. */
    if (strcmp(kind, "late")) {
        sleep(strcmp(kind, "stopped") ? 1 : 2);
        if (0 == strcmp(kind, "stopped") && rank == (0 == victim)) {
            kill(pids[victim], SIGKILL);
        }
        _exit(0);
    }
    MPI_Finalize();
    return 0;
}
