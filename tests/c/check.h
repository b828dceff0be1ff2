/* Checks of the conformance programs: a line per check on rank 0, a count of failures at the end. */
#ifndef HETCCL_CHECK_H
#define HETCCL_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "persistent.h"

static int ranks, me, failures;

/* All ranks call it; the check holds when it holds on all of them. */
static inline void check_on(MPI_Comm comm, const char *name, int holds)
{
    int all = 0;
    PMPI_Allreduce(&holds, &all, 1, MPI_INT, MPI_MIN, comm);
    if (!holds) {
        printf("FAILED %s on rank %d\n", name, me);
    }
    if (!all) {
        ++failures;
    } else if (0 == me) {
        printf("ok %s\n", name);
    }
    fflush(stdout);
}

static inline void check(const char *name, int holds) { check_on(MPI_COMM_WORLD, name, holds); }

static inline void begin(int *argc, char ***argv)
{
    int got;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &got);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
}

static inline int end(void)
{
    if (0 == me) {
        printf("%d failures\n", failures);
    }
    MPI_Finalize();
    return failures ? 1 : 0;
}

#endif
