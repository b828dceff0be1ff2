/* Random collectives of NCCL's interface on random communicators, each result checked; one rank of several processes.
 *
 *   soak_nccl SEED SECONDS cuda|rocm RANK SIZE FILE
 *
 * Rank 0 writes the unique id to FILE. */
#include "memory.h"
#include "nccl_api.h"
#include "soak.h"

enum { MOST_BYTES = 1 << 20, SLOTS = 3, COMMS = 3, REPORT_SECONDS = 2, TURNS = 64 };
enum kind { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, GATHER, SCATTER, RING, KINDS };

static const int types[TYPES] = {ncclInt8,  ncclUint8,  ncclInt32,   ncclUint32,
                                 ncclInt64, ncclUint64, ncclFloat32, ncclFloat64};
static const int ops[OPS] = {ncclSum, ncclProd, ncclMax, ncclMin};
static int me, ranks;
static enum memory memory;
static long calls;
static stream_t stream;
static int (*stream_create)(stream_t *, unsigned), (*stream_query)(stream_t);
static char *scratch;

static struct comm {
    ncclComm_t comm;
    int rank, size;
} comms[COMMS];

/* A call with its buffers. */
static struct slot {
    char *in, *out;
    enum kind kind;
    enum type type;
    enum op op;
    int n, root, salt;
} slots[SLOTS];

static void nccl(const char *what, int got)
{
    if (ncclSuccess != got) {
        printf("FAILED rank %d: %s gave %d (%s)\n", me, what, got, ncclGetLastError(NULL));
        exit(1);
    }
}
#define NCCL(call) nccl(#call, call)

static void load_streams(void)
{
    void *const library = is_cuda(memory) ? (load_cuda(), cuda.library) : (load_hip(), hip.library);
    *(void **) &stream_create = find(library, is_cuda(memory) ? "cuStreamCreate" : "hipStreamCreateWithFlags");
    *(void **) &stream_query = find(library, is_cuda(memory) ? "cuStreamQuery" : "hipStreamQuery");
    must("stream", stream_create(&stream, 1));
}

/* Waits for the stream; it would wait for ever where a rank is lost. */
static void wait_for(const struct comm *comm)
{
    enum { NOT_READY = 600 }; /* in both drivers */
    int status, error = ncclSuccess;
    while (NOT_READY == (status = stream_query(stream))) {
        NCCL(ncclCommGetAsyncError(comm->comm, &error));
        nccl("the asynchronous error", error);
        usleep(50);
    }
    must("the stream", status);
}

/* Copies end before work that is on a stream of its own. */
static void put(void *to, const void *from, size_t bytes)
{
    memory_put(memory, to, from, bytes);
    must("synchronize", is_cuda(memory) ? cuda.synchronize() : hip.synchronize());
}

static int in_elements(const struct slot *s, const struct comm *comm)
{
    const int spreads = REDUCE_SCATTER == s->kind || ALLTOALL == s->kind || (SCATTER == s->kind && comm->rank == s->root);
    return spreads ? s->n * comm->size : s->n;
}

static int out_elements(const struct slot *s, const struct comm *comm)
{
    if ((REDUCE == s->kind || GATHER == s->kind) && comm->rank != s->root) {
        return 0;
    }
    return ALLGATHER == s->kind || ALLTOALL == s->kind || GATHER == s->kind ? s->n * comm->size : s->n;
}

static double expected(const struct slot *s, const struct comm *comm, int i)
{
    const int rank = comm->rank, size = comm->size;
    switch (s->kind) {
    case ALLREDUCE: case REDUCE: return combined(s->op, 0, size, i, s->salt);
    case REDUCE_SCATTER: return combined(s->op, 0, size, rank * s->n + i, s->salt);
    case BROADCAST: return element(s->root, i, s->salt);
    case SCATTER: return element(s->root, rank * s->n + i, s->salt);
    case RING: return element((rank + size - 1) % size, i, s->salt);
    case ALLTOALL: return element(i / s->n, rank * s->n + i % s->n, s->salt);
    default: return element(i / s->n, i % s->n, s->salt);
    }
}

static void fill(const struct slot *s, const struct comm *comm)
{
    const int width = widths[s->type], inputs = in_elements(s, comm), outputs = out_elements(s, comm);
    memset(scratch, 0, (size_t) outputs * width);
    put(s->out, scratch, (size_t) outputs * width);
    for (int i = 0; i < inputs; ++i) {
        store(s->type, element(comm->rank, i, s->salt), scratch + i * width);
    }
    put(s->in, scratch, (size_t) inputs * width);
}

static void check(const struct slot *s, const struct comm *comm)
{
    const int width = widths[s->type], count = out_elements(s, comm), stride = count > 4096 ? 61 : 1;
    memory_get(memory, scratch, s->out, (size_t) count * width);
    for (int i = 0; i < count; i = i + stride < count || i == count - 1 ? i + stride : count - 1) {
        const double want = expected(s, comm, i), have = load(s->type, scratch + i * width);
        if (want != have) {
            printf("FAILED rank %d of %d: kind %d type %d op %d n %d root %d: element %d is %g, not %g\n", comm->rank, comm->size,
                   s->kind, s->type, s->op, s->n, s->root, i, have, want);
            exit(1);
        }
    }
    ++calls;
}

static void start(const struct slot *s, const struct comm *comm)
{
    const size_t n = (size_t) s->n;
    const int type = types[s->type], op = ops[s->op], root = s->root;
    switch (s->kind) {
    case ALLREDUCE: NCCL(ncclAllReduce(s->in, s->out, n, type, op, comm->comm, stream)); break;
    case REDUCE: NCCL(ncclReduce(s->in, s->out, n, type, op, root, comm->comm, stream)); break;
    case BROADCAST: NCCL(ncclBroadcast(s->in, s->out, n, type, root, comm->comm, stream)); break;
    case ALLGATHER: NCCL(ncclAllGather(s->in, s->out, n, type, comm->comm, stream)); break;
    case REDUCE_SCATTER: NCCL(ncclReduceScatter(s->in, s->out, n, type, op, comm->comm, stream)); break;
    case ALLTOALL: NCCL(ncclAlltoAll(s->in, s->out, n, type, comm->comm, stream)); break;
    case GATHER: NCCL(ncclGather(s->in, s->out, n, type, root, comm->comm, stream)); break;
    case SCATTER: NCCL(ncclScatter(s->in, s->out, n, type, root, comm->comm, stream)); break;
    default:
        NCCL(ncclGroupStart());
        NCCL(ncclSend(s->in, n, type, (comm->rank + 1) % comm->size, comm->comm, stream));
        NCCL(ncclRecv(s->out, n, type, (comm->rank + comm->size - 1) % comm->size, comm->comm, stream));
        NCCL(ncclGroupEnd());
        break;
    }
}

/* A few calls one after the other on the stream, or in a group. */
static void some_calls(void)
{
    const int which = below(COMMS), count = 1 + below(SLOTS), grouped = below(2);
    const struct comm *const comm = NULL == comms[which].comm ? &comms[0] : &comms[which];
    for (int i = 0; i < count; ++i) {
        struct slot *const s = &slots[i];
        s->kind = (enum kind) below(KINDS);
        s->type = (enum type) below(TYPES);
        s->op = (enum op) below(OPS);
        s->n = random_count(MOST_BYTES / 8 / ranks - 1);
        s->root = below(1 << 20) % comm->size;
        s->salt = below(1000);
        fill(s, comm);
    }
    if (grouped) {
        NCCL(ncclGroupStart());
    }
    for (int i = 0; i < count; ++i) {
        start(&slots[i], comm);
    }
    if (grouped) {
        NCCL(ncclGroupEnd());
    }
    wait_for(comm);
    for (int i = 0; i < count; ++i) {
        check(&slots[i], comm);
    }
}

static void change_communicators(void)
{
    struct comm *const slot = &comms[1 + below(COMMS - 1)];
    const int step = 1 + below(ranks), backwards = below(2);
    if (NULL != slot->comm) {
        NCCL(ncclCommDestroy(slot->comm));
        slot->comm = NULL;
        return;
    }
    NCCL(ncclCommSplit(comms[0].comm, me / step, backwards ? ranks - me : me, &slot->comm, NULL));
    NCCL(ncclCommUserRank(slot->comm, &slot->rank));
    NCCL(ncclCommCount(slot->comm, &slot->size));
}

static int goes_on(double began, double limit)
{
    int on = seconds() - began < limit;
    put(slots[0].in, &on, sizeof on);
    NCCL(ncclAllReduce(slots[0].in, slots[0].out, 1, ncclInt32, ncclMin, comms[0].comm, stream));
    wait_for(&comms[0]);
    memory_get(memory, &on, slots[0].out, sizeof on);
    return on;
}

static ncclUniqueId meet(const char *path)
{
    ncclUniqueId id;
    char name[4096];
    FILE *file = NULL;
    snprintf(name, sizeof name, "%s.new", path);
    if (0 == me) {
        NCCL(ncclGetUniqueId(&id));
        file = fopen(name, "wb");
        if (NULL == file || 1 != fwrite(&id, sizeof id, 1, file) || 0 != fclose(file) || 0 != rename(name, path)) {
            exit(2);
        }
        return id;
    }
    for (int i = 0; i < 6000 && NULL == (file = fopen(path, "rb")); ++i) {
        usleep(10000);
    }
    if (NULL == file || 1 != fread(&id, sizeof id, 1, file)) {
        exit(2);
    }
    fclose(file);
    return id;
}

int main(int argc, char **argv)
{
    if (argc < 7) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    random_state = strtoull(argv[1], NULL, 10);
    const double limit = atof(argv[2]);
    memory = 0 == strcmp(argv[3], "cuda") ? CUDA : ROCM;
    me = atoi(argv[4]);
    ranks = atoi(argv[5]);
    load_streams();
    scratch = malloc(MOST_BYTES);
    for (int i = 0; i < SLOTS; ++i) {
        slots[i].in = memory_alloc(memory, MOST_BYTES);
        slots[i].out = memory_alloc(memory, MOST_BYTES);
    }
    NCCL(ncclCommInitRank(&comms[0].comm, ranks, meet(argv[6]), me));
    comms[0].rank = me;
    comms[0].size = ranks;
    const double began = seconds();
    double next_report = began;
    for (int turn = 0; turn % TURNS || goes_on(began, limit); ++turn) {
        if (0 == below(16)) {
            change_communicators();
        } else {
            some_calls();
        }
        if (seconds() >= next_report) {
            report(me, began, calls);
            next_report += REPORT_SECONDS;
        }
    }
    for (int i = COMMS - 1; i >= 0; --i) {
        if (NULL != comms[i].comm) {
            NCCL(ncclCommDestroy(comms[i].comm));
        }
    }
    report(me, began, calls);
    return 0;
}
