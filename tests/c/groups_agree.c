/* Sums that depend on the order of their terms must have the same bits on all ranks, and be right: every size from small to
 * pipelined, several floating types, in place and not. */
#include "check.h"

#define MOST (1 << 18)

/* Whether all ranks have the same bytes. */
static int agreed(const void *buffer, size_t bytes)
{
    char *first = malloc(bytes);
    int same, all;
    memcpy(first, buffer, bytes);
    MPI_Bcast(first, (int) bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    same = 0 == memcmp(first, buffer, bytes);
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    free(first);
    return all;
}

#define SUM(type, mpi_type, tolerance)                                                            \
    for (int count = 1; count <= MOST; count *= 16) {                                             \
        type *in = malloc(sizeof(type) * count), *out = malloc(sizeof(type) * count);             \
        type *again = malloc(sizeof(type) * count);                                               \
        int right = 1;                                                                            \
        for (int i = 0; i < count; ++i) {                                                         \
            again[i] = in[i] = (type) (1.0 / (3 + me * 7 + i % 11));                              \
        }                                                                                         \
        MPI_Allreduce(in, out, count, mpi_type, MPI_SUM, MPI_COMM_WORLD);                         \
        MPI_Allreduce(MPI_IN_PLACE, again, count, mpi_type, MPI_SUM, MPI_COMM_WORLD);             \
        for (int i = 0; i < count; ++i) {                                                         \
            double wanted = 0;                                                                    \
            for (int r = 0; r < ranks; ++r) {                                                     \
                wanted += (type) (1.0 / (3 + r * 7 + i % 11));                                    \
            }                                                                                     \
            right &= out[i] - wanted < tolerance && wanted - out[i] < tolerance;                  \
        }                                                                                         \
        check("sum of " #type ", right", right);                                                  \
        check("sum of " #type ", same bits on all ranks", agreed(out, sizeof(type) * count));     \
        check("sum of " #type ", same bits in place", 0 == memcmp(out, again, sizeof(type) * count)); \
        free(in), free(out), free(again);                                                         \
    }

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    SUM(float, MPI_FLOAT, 1e-5)
    SUM(double, MPI_DOUBLE, 1e-12)
    return end();
}
