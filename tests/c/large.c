/* Buffers past 2 GiB, on two ranks: large [reserve bytes]. Says SKIPPED where memory does not suffice. */
#include "check.h"

/* Bytes that can be allocated without swapping: page cache counts, as the kernel gives it up. */
static size_t available_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (1 == sscanf(line, "MemAvailable: %llu kB", &kib)) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return (size_t) kib << 10;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const int count = 300 * 1000 * 1000; /* 2.4 GB of doubles */
    size_t bytes = (size_t) count * sizeof(double);
    size_t available = available_bytes();
    int enough = available > 5 * bytes;
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!enough) {
        if (0 == me) {
            printf("SKIPPED large: %zu MiB of memory are free, %zu are needed\n", available >> 20, (5 * bytes) >> 20);
        }
        return end();
    }
    double *data = malloc(bytes);
    int right = 1;
    for (int i = 0; i < count; ++i) {
        data[i] = 0 == me ? i % 1000 : 0;
    }
    MPI_Bcast(data, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < count; i += 997) {
        right &= data[i] == i % 1000;
    }
    check("bcast of 2.4 GB", right);
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < count; i += 997) {
        right &= data[i] == ranks * (double) (i % 1000);
    }
    check("allreduce of 2.4 GB in place", right);
    free(data);
    return end();
}
