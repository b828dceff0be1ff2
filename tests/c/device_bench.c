/* Time of collectives on CUDA buffers.
 *
 *   device_bench device|host SMALLEST LARGEST    device: the buffers go to MPI as they are
 *                                                host: copied to pageable host memory, collective there, copied back
 *
 * Prints "collective bytes microseconds" on rank 0: the median over repetitions of the slowest rank's time. Bytes are
 * those of a rank's contribution, or of the whole vector for bcast, allreduce and reduce_scatter_block. */
#include "check.h"
#include "memory.h"

#define REPETITIONS 15

enum { ALLREDUCE, BCAST, ALLGATHER, ALLTOALL, REDUCE_SCATTER_BLOCK, KINDS };
static const char *const names[KINDS] = {"allreduce", "bcast", "allgather", "alltoall", "reduce_scatter_block"};

static void run(int kind, void *in, void *out, size_t bytes)
{
    const int n = (int) (bytes / sizeof(float)), per = n / ranks;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (kind) {
    case ALLREDUCE: MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, comm); break;
    case BCAST: MPI_Bcast(in, n, MPI_FLOAT, 0, comm); break;
    case ALLGATHER: MPI_Allgather(in, per, MPI_FLOAT, out, per, MPI_FLOAT, comm); break;
    case ALLTOALL: MPI_Alltoall(in, per, MPI_FLOAT, out, per, MPI_FLOAT, comm); break;
    default: MPI_Reduce_scatter_block(in, out, per, MPI_FLOAT, MPI_SUM, comm); break;
    }
}

/* Bytes that go in and come out. */
static void sizes(int kind, size_t bytes, size_t *in, size_t *out)
{
    *in = ALLGATHER == kind ? bytes / ranks : bytes;
    *out = BCAST == kind ? 0 : REDUCE_SCATTER_BLOCK == kind ? bytes / ranks : bytes;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc < 4) {
        fprintf(stderr, "usage: device_bench device|host SMALLEST LARGEST\n");
        return 2;
    }
    const int on_device = 'd' == argv[1][0];
    const size_t smallest = strtoull(argv[2], NULL, 0), largest = strtoull(argv[3], NULL, 0);
    char *in = memory_alloc(CUDA, largest), *out = memory_alloc(CUDA, largest);
    char *host_in = malloc(largest), *host_out = malloc(largest);
    memset(host_in, 0, largest);
    memset(host_out, 0, largest);
    memory_put(CUDA, in, host_in, largest);
    for (int kind = 0; kind < KINDS; ++kind) {
        for (size_t bytes = smallest; bytes <= largest; bytes *= 8) {
            double times[REPETITIONS];
            const int warm = 3, inner = bytes < (1 << 20) ? 20 : 1;
            for (int i = -warm; i < REPETITIONS; ++i) {
                size_t in_bytes, out_bytes;
                sizes(kind, bytes, &in_bytes, &out_bytes);
                PMPI_Barrier(MPI_COMM_WORLD);
                const double start = PMPI_Wtime();
                for (int j = 0; j < inner; ++j) {
                    if (on_device) {
                        run(kind, in, out, bytes);
                        continue;
                    }
                    memory_get(CUDA, host_in, in, in_bytes);
                    run(kind, host_in, host_out, bytes);
                    if (BCAST == kind) {
                        memory_put(CUDA, in, host_in, in_bytes);
                    } else {
                        memory_put(CUDA, out, host_out, out_bytes);
                    }
                }
                double took = (PMPI_Wtime() - start) / inner, slowest = 0;
                PMPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
                if (i >= 0) {
                    times[i] = slowest;
                }
            }
            qsort(times, REPETITIONS, sizeof(double), ascending);
            if (0 == me) {
                printf("%s %zu %.2f\n", names[kind], bytes, times[REPETITIONS / 2] * 1e6);
                fflush(stdout);
            }
        }
    }
    MPI_Finalize();
    return 0;
}
