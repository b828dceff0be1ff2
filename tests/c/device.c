/* Every collective on device buffers: results must be those of the same call on host buffers.
 *
 *   device SEND RECV MODE COUNT...    SEND, RECV: kinds of memory, one per rank in turn (cuda,rocm,host)
 *                                     MODE: blocking, nonblocking or persistent */
#include "check.h"
#include "memory.h"

#define MAX_RANKS 64
/* Elements before and after what a collective may write. */
#define GUARD 16

enum mode { BLOCKING, NONBLOCKING, PERSISTENT };
static enum mode mode;
static enum memory send_memory, recv_memory;
static int n; /* elements per block */
static int counts[MAX_RANKS], starts[MAX_RANKS], byte_starts[MAX_RANKS];
static MPI_Datatype types[MAX_RANKS], gaps;
static MPI_Op user_op;
static MPI_Comm comm, ring;

#define CALL(upper, lower, ...)                                                                  \
    do {                                                                                         \
        MPI_Request request_;                                                                    \
        switch (mode) {                                                                          \
        case BLOCKING: MPI_##upper(__VA_ARGS__); break;                                          \
        case NONBLOCKING:                                                                        \
            MPI_I##lower(__VA_ARGS__, &request_);                                                \
            MPI_Wait(&request_, MPI_STATUS_IGNORE);                                              \
            break;                                                                               \
        case PERSISTENT:                                                                         \
            MPI_##upper##_init(__VA_ARGS__, MPI_INFO_NULL, &request_);                          \
            for (int round_ = 0; round_ < (twice ? 2 : 1); ++round_) {                           \
                MPI_Start(&request_);                                                            \
                MPI_Wait(&request_, MPI_STATUS_IGNORE);                                          \
            }                                                                                    \
            MPI_Request_free(&request_);                                                         \
            break;                                                                               \
        }                                                                                        \
    } while (0)

/* Starting twice gives the same result unless the collective reads its output. */
static int twice;

static void allgather(void *in, void *out) { CALL(Allgather, allgather, in, n, MPI_INT, out, n, MPI_INT, comm); }
static void allgather_in_place(void *in, void *out)
{
    (void) in;
    CALL(Allgather, allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, n, MPI_INT, comm);
}
static void allgatherv(void *in, void *out)
{
    CALL(Allgatherv, allgatherv, in, counts[me], MPI_INT, out, counts, starts, MPI_INT, comm);
}
static void allreduce(void *in, void *out) { CALL(Allreduce, allreduce, in, out, n * ranks, MPI_INT, MPI_SUM, comm); }
static void allreduce_in_place(void *in, void *out)
{
    (void) in;
    twice = 0;
    CALL(Allreduce, allreduce, MPI_IN_PLACE, out, n * ranks, MPI_INT, MPI_SUM, comm);
}
static void allreduce_float(void *in, void *out)
{
    CALL(Allreduce, allreduce, in, out, n * ranks, MPI_FLOAT, MPI_MAX, comm);
}
static void allreduce_user(void *in, void *out)
{
    CALL(Allreduce, allreduce, in, out, n * ranks, MPI_INT, user_op, comm);
}
static void allreduce_pair(void *in, void *out)
{
    CALL(Allreduce, allreduce, in, out, n * ranks / 2, MPI_2INT, MPI_MINLOC, comm);
}
static void allreduce_gaps(void *in, void *out) { CALL(Allreduce, allreduce, in, out, n * ranks / 4, gaps, user_op, comm); }
static void alltoall(void *in, void *out) { CALL(Alltoall, alltoall, in, n, MPI_INT, out, n, MPI_INT, comm); }
static void alltoallv(void *in, void *out)
{
    CALL(Alltoallv, alltoallv, in, counts, starts, MPI_INT, out, counts, starts, MPI_INT, comm);
}
static void alltoallw(void *in, void *out)
{
    CALL(Alltoallw, alltoallw, in, counts, byte_starts, types, out, counts, byte_starts, types, comm);
}
static void barrier(void *in, void *out)
{
    (void) in, (void) out;
    CALL(Barrier, barrier, comm);
}
static void bcast(void *in, void *out)
{
    (void) in;
    CALL(Bcast, bcast, out, n, MPI_INT, ranks - 1, comm);
}
static void bcast_gaps(void *in, void *out)
{
    (void) in;
    CALL(Bcast, bcast, out, n / 4, gaps, 0, comm);
}
static void exscan(void *in, void *out) { CALL(Exscan, exscan, in, out, n, MPI_INT, MPI_SUM, comm); }
static void gather(void *in, void *out) { CALL(Gather, gather, in, n, MPI_INT, out, n, MPI_INT, 0, comm); }
static void gather_gaps(void *in, void *out)
{
    CALL(Gather, gather, in, n / 4, gaps, out, n / 4 * 3, MPI_INT, ranks - 1, comm);
}
static void gatherv(void *in, void *out)
{
    CALL(Gatherv, gatherv, in, counts[me], MPI_INT, out, counts, starts, MPI_INT, 0, comm);
}
static void neighbor_allgather(void *in, void *out)
{
    CALL(Neighbor_allgather, neighbor_allgather, in, n, MPI_INT, out, n, MPI_INT, ring);
}
static void neighbor_alltoall(void *in, void *out)
{
    CALL(Neighbor_alltoall, neighbor_alltoall, in, n / 2, MPI_INT, out, n / 2, MPI_INT, ring);
}
static void neighbor_allgatherv(void *in, void *out)
{
    const int lens[2] = {n, n}, places[2] = {n, 0};
    CALL(Neighbor_allgatherv, neighbor_allgatherv, in, n, MPI_INT, out, lens, places, MPI_INT, ring);
}
static void neighbor_alltoallv(void *in, void *out)
{
    const int lens[2] = {n / 2, n / 2}, from[2] = {n / 2, 0}, into[2] = {0, n};
    CALL(Neighbor_alltoallv, neighbor_alltoallv, in, lens, from, MPI_INT, out, lens, into, MPI_INT, ring);
}
static void neighbor_alltoallw(void *in, void *out)
{
    const int lens[2] = {n / 2, n / 2};
    const MPI_Aint from[2] = {0, n / 2 * (int) sizeof(int)}, into[2] = {n * (int) sizeof(int), 0};
    CALL(Neighbor_alltoallw, neighbor_alltoallw, in, lens, from, types, out, lens, into, types, ring);
}
static void reduce(void *in, void *out) { CALL(Reduce, reduce, in, out, n, MPI_INT, MPI_BXOR, 0, comm); }
static void reduce_scatter(void *in, void *out)
{
    CALL(Reduce_scatter, reduce_scatter, in, out, counts, MPI_INT, MPI_SUM, comm);
}
static void reduce_scatter_block(void *in, void *out)
{
    CALL(Reduce_scatter_block, reduce_scatter_block, in, out, n, MPI_INT, MPI_SUM, comm);
}
static void scan(void *in, void *out) { CALL(Scan, scan, in, out, n, MPI_INT, MPI_SUM, comm); }
static void scatter(void *in, void *out) { CALL(Scatter, scatter, in, n, MPI_INT, out, n, MPI_INT, 0, comm); }
static void scatterv(void *in, void *out)
{
    CALL(Scatterv, scatterv, in, counts, starts, MPI_INT, out, counts[me], MPI_INT, 0, comm);
}
static void reduce_local(void *in, void *out) { MPI_Reduce_local(in, out, n, MPI_INT, MPI_SUM); }
static void reduce_local_gaps(void *in, void *out) { MPI_Reduce_local(in, out, n / 4, gaps, user_op); }

static const struct {
    const char *name;
    void (*run)(void *, void *);
} collectives[] = {
#define ENTRY(name) {#name, name}
    ENTRY(allgather),      ENTRY(allgather_in_place),   ENTRY(allgatherv),        ENTRY(allreduce),
    ENTRY(allreduce_in_place), ENTRY(allreduce_float),  ENTRY(allreduce_user),    ENTRY(allreduce_pair),
    ENTRY(allreduce_gaps), ENTRY(alltoall),             ENTRY(alltoallv),         ENTRY(alltoallw),
    ENTRY(barrier),        ENTRY(bcast),                ENTRY(bcast_gaps),        ENTRY(exscan),
    ENTRY(gather),         ENTRY(gather_gaps),          ENTRY(gatherv),           ENTRY(neighbor_allgather),
    ENTRY(neighbor_allgatherv), ENTRY(neighbor_alltoall), ENTRY(neighbor_alltoallv), ENTRY(neighbor_alltoallw),
    ENTRY(reduce),         ENTRY(reduce_scatter),       ENTRY(reduce_scatter_block), ENTRY(scan),
    ENTRY(scatter),        ENTRY(scatterv),             ENTRY(reduce_local),      ENTRY(reduce_local_gaps),
};

/* Packed elements or elements of `gaps`: one int in the middle of each stays what it is. */
static void maximum_and_count(void *left, void *inout, int *len, MPI_Datatype *type)
{
    const int *a = left;
    int *b = inout;
    if (MPI_INT == *type) {
        for (int i = 0; i < *len; ++i) {
            b[i] = (a[i] > b[i] ? a[i] : b[i]) + 1;
        }
        return;
    }
    for (int i = 0; i < *len; ++i) {
        for (int j = 0; j < 4; ++j) {
            if (1 != j) {
                b[4 * i + j] += a[4 * i + j];
            }
        }
    }
}

/* The same call on host and on device buffers, filled alike; the outputs must be equal, guards included. */
static void compare(int which)
{
    const size_t elements = (size_t) (n > 0 ? n : 1) * (size_t) ranks * 2 + 2 * GUARD, bytes = elements * sizeof(int);
    int *in = malloc(bytes), *out = malloc(bytes), *wanted = malloc(bytes), *got = malloc(bytes);
    for (size_t i = 0; i < elements; ++i) {
        in[i] = (int) ((i * 7 + (size_t) me * 13) % 1000);
        out[i] = (int) (i + 100000 * (size_t) (me + 1));
    }
    char *device_in = memory_alloc(send_memory, bytes), *device_out = memory_alloc(recv_memory, bytes);
    memory_put(send_memory, device_in, in, bytes);
    memory_put(recv_memory, device_out, out, bytes);
    memcpy(wanted, out, bytes);
    twice = 1;
    collectives[which].run(in + GUARD, wanted + GUARD);
    twice = 1;
    collectives[which].run(device_in + GUARD * sizeof(int), device_out + GUARD * sizeof(int));
    memory_get(recv_memory, got, device_out, bytes);
    int equal = 0 == memcmp(got, wanted, bytes);
    for (size_t i = 0; !equal && i < elements; ++i) {
        if (got[i] != wanted[i]) {
            printf("rank %d: element %zd is %d, should be %d (was %d)\n", me, (ssize_t) i - GUARD, got[i], wanted[i],
                   out[i]);
            break;
        }
    }
    memory_get(send_memory, got, device_in, bytes);
    char name[64];
    snprintf(name, sizeof(name), "%s of %d", collectives[which].name, n);
    check(name, equal && 0 == memcmp(got, in, bytes));
    memory_free(send_memory, device_in);
    memory_free(recv_memory, device_out);
    free(in), free(out), free(wanted), free(got);
}

/* Work that the program has queued on its default stream comes before the collective. */
static void queued_work(void)
{
    const size_t bytes = 1 << 20;
    char *in = memory_alloc(send_memory, bytes), *out = memory_alloc(recv_memory, bytes), *got = malloc(bytes);
    int right = 1;
    for (int round = 1; round < 20; ++round) {
        memory_set_later(send_memory, in, round, bytes);
        memory_set_later(recv_memory, out, 99, bytes);
        MPI_Allreduce(in, out, (int) bytes, MPI_CHAR, MPI_MAX, comm);
        memory_get(recv_memory, got, out, bytes);
        right &= got[0] == round && got[bytes - 1] == round;
    }
    check("queued work comes first", right);
    memory_free(send_memory, in);
    memory_free(recv_memory, out);
    free(got);
}

int main(int argc, char **argv)
{
    if (opened_own(argc, argv)) {
        return 0;
    }
    begin(&argc, &argv);
    if (argc < 5 || ranks > MAX_RANKS) {
        fprintf(stderr, "usage: device SEND RECV blocking|nonblocking|persistent COUNT...\n");
        return 2;
    }
    send_memory = memory_of_rank(argv[1], me);
    recv_memory = memory_of_rank(argv[2], me);
    mode = 'b' == argv[3][0] ? BLOCKING : 'n' == argv[3][0] ? NONBLOCKING : PERSISTENT;
    comm = MPI_COMM_WORLD;
    int periodic = 1;
    MPI_Cart_create(comm, 1, &ranks, &periodic, 0, &ring);
    MPI_Op_create(maximum_and_count, 1, &user_op);
    for (int r = 0; r < MAX_RANKS; ++r) {
        types[r] = MPI_INT;
    }
    MPI_Datatype vector;
    const int lengths[2] = {1, 2}, places[2] = {0, 2};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &gaps);
    MPI_Type_commit(&gaps);
    for (int a = 4; a < argc; ++a) {
        n = atoi(argv[a]);
        for (int r = 0; r < ranks; ++r) {
            counts[r] = n;
            /* Blocks in reverse order, and a gap before the first for alltoallw. */
            starts[r] = (ranks - 1 - r) * n;
            byte_starts[r] = (starts[r] + (n > 0 ? 1 : 0)) * (int) sizeof(int);
        }
        for (size_t i = 0; i < sizeof(collectives) / sizeof(*collectives); ++i) {
            compare((int) i);
        }
    }
    queued_work();
    MPI_Type_free(&vector);
    MPI_Type_free(&gaps);
    MPI_Op_free(&user_op);
    MPI_Comm_free(&ring);
    return end();
}
