/* op.h includes it for this conversion. MPI_Fint is as wide as int wherever Open MPI runs in practice, and the cast is right
 * where it is not. */
#define OMPI_INT_2_FINT(a) ((MPI_Fint) (a))
