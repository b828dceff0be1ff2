/* Fault tolerance as Open MPI 5 has it: the last rank dies, the others see MPI_ERR_PROC_FAILED, one revokes, a rank inside a
 * collective hears of it, all agree, shrink and go on. Needs mpirun --with-ft ulfm. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int me, ranks, failures;

static void check(const char *name, int holds)
{
    if (!holds) {
        printf("WRONG on rank %d: %s\n", me, name);
        failures += 1;
    }
}

static int class_of(int error)
{
    int class;
    MPI_Error_class(error, &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm comm, shrunk;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int one = 1, sum = 0;
    check("a collective of all", MPI_SUCCESS == MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) && sum == ranks);
    if (me == ranks - 1) {
        raise(SIGKILL);
    }
    /* Sooner or later the failure is known. */
    int rc = MPI_SUCCESS;
    for (int i = 0; i < 1000 && MPI_SUCCESS == rc; ++i) {
        rc = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
    check("the failure is MPI_ERR_PROC_FAILED or MPI_ERR_REVOKED",
          MPIX_ERR_PROC_FAILED == class_of(rc) || MPIX_ERR_REVOKED == class_of(rc));
    MPIX_Comm_revoke(comm);
    rc = MPI_Barrier(comm);
    check("a revoked communicator is MPI_ERR_REVOKED", MPIX_ERR_REVOKED == class_of(rc));
    int flag = ~(1 << me);
    rc = MPIX_Comm_agree(comm, &flag);
    int others = ~((1 << (ranks - 1)) - 1);
    check("agreement of those that are left", flag == others);
    check("shrink", MPI_SUCCESS == MPIX_Comm_shrink(comm, &shrunk));
    int left;
    MPI_Comm_size(shrunk, &left);
    check("one rank fewer", left == ranks - 1);
    check("a collective of those that are left",
          MPI_SUCCESS == MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, shrunk) && sum == left);
    /* A rank that waits in a collective hears of a revocation. */
    if (left > 1) {
        MPI_Comm other;
        MPI_Comm_dup(shrunk, &other);
        MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
        int rank;
        MPI_Comm_rank(other, &rank);
        if (rank == 0) {
            usleep(200000);
            MPIX_Comm_revoke(other);
        } else {
            rc = MPI_Barrier(other);
            check("a collective under way ends with MPI_ERR_REVOKED", MPIX_ERR_REVOKED == class_of(rc));
        }
        MPI_Comm_free(&other);
    }
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, shrunk);
    MPI_Barrier(shrunk);
    if (me == 0 && all == 0) {
        printf("all right\n");
    }
    MPI_Comm_free(&shrunk);
    MPI_Finalize();
    return all != 0;
}
