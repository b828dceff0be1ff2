/* Communicators made, used and freed by the thousand; memory must stay flat: churn [cycles] [no-limit]. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (NULL == file || 2 != fscanf(file, "%ld %ld", &pages, &resident)) {
        return 0;
    }
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
    int cycles = argc > 1 ? atoi(argv[1]) : 20000, bounded = argc < 3, me, ranks;
    const long most_kib = 1024;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long first = 0;
    for (int i = 0; i < cycles; ++i) {
        MPI_Comm comm;
        MPI_Request request;
        int mine = me + i, sum = 0, later = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        MPI_Iallreduce(&mine, &later, 1, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Comm_free(&comm);
        int wanted = ranks * (ranks - 1) / 2 + ranks * i;
        if (sum != wanted || later != wanted) {
            printf("FAILED cycle %d: %d and %d, not %d\n", i, sum, later, wanted);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (i == cycles / 10) {
            first = resident_kib(); /* caches and pools are warm by now */
        }
    }
    long grown = resident_kib() - first, most;
    MPI_Reduce(&grown, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (0 == me) {
        printf("%s churn: %d cycles, resident memory grew by %ld KiB on the worst rank (allowed %ld)\n",
               !bounded || most <= most_kib ? "ok" : "FAILED", cycles, most, most_kib);
    }
    MPI_Bcast(&most, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return !bounded || most <= most_kib ? 0 : 1;
}
