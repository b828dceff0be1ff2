/* Wrong calls: the error classes that Open MPI's own components give, by the communicator's handler, and no harm after. */
#include "check.h"

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comm;
    int data[64] = {0}, code, one = 1, sum = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    code = MPI_Bcast(data, 1, MPI_INT, ranks, comm);
    check("invalid root", MPI_ERR_ROOT == class_of(code));
    code = MPI_Reduce(data, data + 32, 1, MPI_INT, MPI_SUM, -7, comm);
    check("negative root", MPI_ERR_ROOT == class_of(code));
    code = MPI_Allreduce(data, data + 32, -1, MPI_INT, MPI_SUM, comm);
    check("negative count", MPI_ERR_COUNT == class_of(code));
    code = MPI_Bcast(data, 1, MPI_DATATYPE_NULL, 0, comm);
    check("no datatype", MPI_ERR_TYPE == class_of(code));
    code = MPI_Allreduce(data, data + 32, 1, MPI_INT, MPI_OP_NULL, comm);
    check("no operation", MPI_ERR_OP == class_of(code));
    code = MPI_Barrier(comm);
    check("and a right call", MPI_SUCCESS == code);
    /* Rank 0 sends 40 elements; rank 1 has room for 20. */
    MPI_Comm two;
    MPI_Comm_split(MPI_COMM_WORLD, me < 2 ? 0 : MPI_UNDEFINED, me, &two);
    int truncated = 1;
    if (MPI_COMM_NULL != two && ranks > 1) {
        MPI_Comm_set_errhandler(two, MPI_ERRORS_RETURN);
        code = MPI_Bcast(data, 0 == me ? 40 : 20, MPI_INT, 0, two);
        truncated = 0 == me || MPI_ERR_TRUNCATE == class_of(code);
    }
    if (ranks > 1) {
        check("truncated bcast", truncated);
    } else {
        printf("SKIPPED truncated bcast: it takes two ranks\n");
    }
    if (MPI_COMM_NULL != two) {
        MPI_Comm_free(&two);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check("another communicator is unharmed", sum == ranks);
    MPI_Comm_free(&comm);
    return end();
}
