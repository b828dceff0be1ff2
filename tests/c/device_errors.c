/* Trouble with device buffers ends in an MPI error on every rank, not in a crash or a wait.
 *
 *   device_errors MEMORY freed     the buffer, of this kind, has been freed before the call
 *   device_errors MEMORY failing   the driver fails (the test makes it) */
#include "check.h"
#include "memory.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const enum memory memory = memory_of_rank(argc > 1 ? argv[1] : "", me);
    const int freed = argc > 2 && 0 == strcmp(argv[2], "freed");
    const int n = 100000;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    void *in = memory_alloc(memory, n * sizeof(int)), *out = memory_alloc(memory, n * sizeof(int));
    int *zeros = calloc((size_t) n, sizeof(int));
    memory_put(memory, in, zeros, n * sizeof(int));
    int status = MPI_SUCCESS;
    if (freed) {
        status = MPI_Bcast(in, n, MPI_INT, 0, MPI_COMM_WORLD);
        check("a live buffer works", MPI_SUCCESS == status);
        memory_free(memory, in);
    }
    status = MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int class = MPI_SUCCESS;
    MPI_Error_class(status, &class);
    check("an error is returned", MPI_SUCCESS != class);
    check("its class is the buffer's", !freed || MPI_ERR_BUFFER == class);
    /* Host memory still works: PMPI_Allreduce in check() has shown it. */
    free(zeros);
    return end();
}
