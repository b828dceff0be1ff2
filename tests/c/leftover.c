/* MPI_Finalize while a nonblocking collective of another communicator has not been waited for: leftover [abort]. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comm;
    MPI_Request request;
    static int token;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Ibcast(&token, 1, MPI_INT, 0, comm, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1) {
        if (ranks - 1 == me) {
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    check("still here", 1);
    return end();
}
