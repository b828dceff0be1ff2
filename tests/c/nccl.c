/* A program of NCCL's interface: every collective, type and operation, groups, split, shrink, abort and wrong arguments,
 * compared with what the host computes. It links to libnccl.so.2 or librccl.so.1, whichever it is built with.
 *
 *     nccl cuda|rocm rank RANK SIZE FILE COUNT     one rank of several processes; rank 0 writes the unique id to FILE
 *     nccl cuda|rocm all SIZE COUNT                all ranks in this one thread (ncclCommInitAll)
 *
 * Prints a line "ok WHAT" for each check that held. With HETCCL_TESTS_REFERENCE set it runs on a vendor's own library as well: "differs
 * WHAT" where that gives another code for a wrong call, "SKIPPED WHAT" for what that lacks, or does not survive. */
#include "nccl_device.h"

#include <math.h>

#define MOST 8

static int held;

static void ok(int rank, const char *what)
{
    held += 1;
    printf("ok %d %s\n", rank, what);
}

static int reference;

static void refused(const char *call, int got, int wanted)
{
    if (reference && got != wanted) {
        printf("differs %s: %d here, %d by hetccl\n", call, got, wanted);
        return;
    }
    nccl(call, got, wanted);
    if (!reference && !ncclGetLastError(NULL)[0]) exit(5);
    ok(0, call);
}
#define REFUSED(code, call) refused(#call, call, code)

/* Whether the library has a function that not every version has. */
static int has(const char *name, int there)
{
    if (!there) printf("SKIPPED %s: this library has none\n", name);
    return there;
}
#define HAS(function) has(#function, NULL != (void *) function)

/* Whether a check is for hetccl alone. */
static int careful(const char *what)
{
    if (reference) printf("SKIPPED %s: hetccl alone\n", what);
    return !reference;
}

static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static void encode(int type, double value, void *at)
{
    float narrow = (float) value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    int exponent = 0 == bits ? 0 : (int) (bits >> 23) - 127;
    uint32_t mantissa = bits >> 13 & 1023;
    switch (type) {
    case ncclInt8: *(int8_t *) at = (int8_t) value; break;
    case ncclUint8: *(uint8_t *) at = (uint8_t) value; break;
    case ncclInt32: *(int32_t *) at = (int32_t) value; break;
    case ncclUint32: *(uint32_t *) at = (uint32_t) value; break;
    case ncclInt64: *(int64_t *) at = (int64_t) value; break;
    case ncclUint64: *(uint64_t *) at = (uint64_t) value; break;
    case ncclFloat16: *(uint16_t *) at = 0 == bits ? 0 : (uint16_t) ((exponent + 15) << 10 | mantissa); break;
    case ncclFloat32: *(float *) at = narrow; break;
    case ncclFloat64: *(double *) at = value; break;
    case ncclBfloat16: *(uint16_t *) at = (uint16_t) (bits >> 16); break;
    case ncclFloat8e4m3: *(uint8_t *) at = 0 == bits ? 0 : (uint8_t) ((exponent + 7) << 3 | mantissa >> 7); break;
    default: *(uint8_t *) at = 0 == bits ? 0 : (uint8_t) ((exponent + 15) << 2 | mantissa >> 8); break;
    }
}

static double small(unsigned code, int mantissa_bits, int bias)
{
    int exponent = (int) (code >> mantissa_bits);
    double fraction = (code & ((1u << mantissa_bits) - 1)) / (double) (1 << mantissa_bits);
    return 0 == exponent ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias);
}

static double decode(int type, const void *at)
{
    float narrow;
    uint32_t bits;
    switch (type) {
    case ncclInt8: return *(const int8_t *) at;
    case ncclUint8: return *(const uint8_t *) at;
    case ncclInt32: return *(const int32_t *) at;
    case ncclUint32: return *(const uint32_t *) at;
    case ncclInt64: return (double) *(const int64_t *) at;
    case ncclUint64: return (double) *(const uint64_t *) at;
    case ncclFloat16: return small(*(const uint16_t *) at, 10, 15);
    case ncclFloat32: return *(const float *) at;
    case ncclFloat64: return *(const double *) at;
    case ncclBfloat16: bits = (uint32_t) *(const uint16_t *) at << 16; memcpy(&narrow, &bits, 4); return narrow;
    case ncclFloat8e4m3: return small(*(const uint8_t *) at, 3, 7);
    default: return small(*(const uint8_t *) at, 2, 15);
    }
}

static int is_small(int type) { return type >= ncclFloat8e4m3; }

/* What rank has at i. */
static double value(int type, int rank, size_t i)
{
    return (double) (((size_t) rank + i) % 2 + (is_small(type) ? 0 : 1));
}

static double combined(int type, int op, int size, size_t i)
{
    double result = value(type, 0, i);
    for (int rank = 1; rank < size; ++rank) {
        double other = value(type, rank, i);
        switch (op) {
        case ncclProd: result *= other; break;
        case ncclMax: result = fmax(result, other); break;
        case ncclMin: result = fmin(result, other); break;
        default: result += other; break;
        }
    }
    if (ncclAvg == op) {
        result = type < ncclFloat16 ? floor(result / size) : result / size;
    }
    return result;
}

/* The ranks of this thread. */
struct rank {
    ncclComm_t comm;
    stream_t stream;
    int rank, size;
    void *send, *recv;
};
static struct rank ranks[MOST];
static int local;
static size_t most_bytes;
static char *host;

static void fill(void *device, int type, int rank, size_t offset, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        encode(type, value(type, rank, offset + i), host + i * widths[type]);
    }
    put(device, host, count * widths[type]);
}

static void compare(const struct rank *r, const char *what, int type, const void *device, size_t count, double (*wanted)(const struct rank *, int, int, size_t), int op)
{
    get(host, device, count * widths[type]);
    for (size_t i = 0; i < count; ++i) {
        double want = wanted(r, type, op, i), have = decode(type, host + i * widths[type]);
        /* 8-bit floats have 2 or 3 bits: exact where the number of ranks is a power of two. */
        double least = is_small(type) ? (0 == (r->size & (r->size - 1)) ? 0 : 0.25) : 0.01;
        double room = ncclAvg == op && type >= ncclFloat16 ? least * fabs(want) : 0;
        if (!(fabs(have - want) <= room)) {
            fprintf(stderr, "rank %d of %d: %s, type %d, op %d, element %zu is %g and not %g\n", r->rank, r->size, what, type, op, i, have, want);
            exit(6);
        }
    }
    char line[96];
    snprintf(line, sizeof line, "%s type %d op %d", what, type, op);
    ok(r->rank, line);
}

static void synchronize(void)
{
    for (int i = 0; i < local; ++i) {
        must("synchronize", stream_synchronize(ranks[i].stream));
        int error = -1;
        NCCL(ncclCommGetAsyncError(ranks[i].comm, &error));
        nccl("asynchronous error", error, ncclSuccess);
    }
}

#define EACH(call)                                                                                                     \
    do {                                                                                                               \
        NCCL(ncclGroupStart());                                                                                        \
        for (int e = 0; e < local; ++e) {                                                                              \
            struct rank *r = &ranks[e];                                                                                \
            NCCL(call);                                                                                                \
        }                                                                                                              \
        NCCL(ncclGroupEnd());                                                                                          \
        synchronize();                                                                                                 \
    } while (0)

static size_t block;
static int the_root;
static double reduced(const struct rank *r, int type, int op, size_t i) { return combined(type, op, r->size, i); }
static double reduced_block(const struct rank *r, int type, int op, size_t i) { return combined(type, op, r->size, (size_t) r->rank * block + i); }
static double gathered(const struct rank *r, int type, int op, size_t i) { (void) r, (void) op; return value(type, (int) (i / block), i % block); }
static double of_root(const struct rank *r, int type, int op, size_t i) { (void) r, (void) op; return value(type, the_root, i); }
static double scattered(const struct rank *r, int type, int op, size_t i) { (void) op; return value(type, the_root, (size_t) r->rank * block + i); }
static double exchanged(const struct rank *r, int type, int op, size_t i) { (void) op; return value(type, (int) (i / block), (size_t) r->rank * block + i % block); }
static double scaled(const struct rank *r, int type, int op, size_t i) { (void) op; return 2 * combined(type, ncclSum, r->size, i); }

static void prepare(int type, size_t count)
{
    for (int i = 0; i < local; ++i) {
        fill(ranks[i].send, type, ranks[i].rank, 0, count);
        memset(host, 0, most_bytes);
        put(ranks[i].recv, host, count * widths[type]);
    }
}

static char *at(void *base, size_t elements, int type) { return (char *) base + elements * widths[type]; }

static void reductions(size_t count)
{
    for (int type = 0; type < ncclNumTypes; ++type) {
        for (int op = ncclSum; op <= ncclAvg; ++op) {
            if (is_small(type) && ncclAvg == op && !careful("the average of 8-bit floats")) continue;
            prepare(type, count);
            EACH(ncclAllReduce(r->send, r->recv, count, type, op, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce", type, ranks[i].recv, count, reduced, op);
            prepare(type, count);
            EACH(pncclAllReduce(r->send, r->send, count, type, op, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce in place", type, ranks[i].send, count, reduced, op);
            block = count;
            prepare(type, count * ranks[0].size);
            EACH(ncclReduceScatter(r->send, r->recv, count, type, op, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "reduce_scatter", type, ranks[i].recv, count, reduced_block, op);
        }
    }
    if (HAS(ncclAllReduceConfig)) {
        ncclCollConfig_t config = {.size = sizeof config, .magic = 0xcafebeef, .version = 23203, .force = 1};
        prepare(ncclFloat64, count);
        EACH(ncclAllReduceConfig(r->send, r->recv, count, ncclFloat64, ncclSum, r->comm, r->stream, e % 2 ? NULL : &config));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce with a configuration", ncclFloat64, ranks[i].recv, count, reduced, ncclSum);
    }
    /* Two in both 8-bit types. */
    for (int type = ncclFloat8e4m3; type <= ncclFloat8e5m2 && careful("scaled sums of 8-bit floats"); ++type) {
        uint8_t two = 0x40;
        int own[MOST];
        for (int i = 0; i < local; ++i) NCCL(ncclRedOpCreatePreMulSum(&own[i], &two, type, 1, ranks[i].comm));
        prepare(type, count);
        EACH(ncclAllReduce(r->send, r->recv, count, type, own[e], r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "premulsum of 8 bits", type, ranks[i].recv, count, scaled, ncclSum);
        for (int i = 0; i < local; ++i) NCCL(ncclRedOpDestroy(own[i], ranks[i].comm));
    }
    int type = ncclFloat32;
    for (int op = ncclSum; op <= ncclAvg; ++op) {
        prepare(type, count * ranks[0].size);
        EACH(ncclReduceScatter(r->send, at(r->send, r->rank * count, type), count, type, op, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "reduce_scatter in place", type, at(ranks[i].send, ranks[i].rank * count, type), count, reduced_block, op);
        for (int root = 0; root < ranks[0].size; ++root) {
            prepare(type, count);
            EACH(ncclReduce(r->send, r->recv, count, type, op, root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) if (ranks[i].rank == root) compare(&ranks[i], "reduce", type, ranks[i].recv, count, reduced, op);
            prepare(type, count);
            EACH(ncclReduce(r->send, r->send, count, type, op, root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) if (ranks[i].rank == root) compare(&ranks[i], "reduce in place", type, ranks[i].send, count, reduced, op);
        }
    }
    for (int where = 0; where < 2; ++where) {
        float two = 2, *scalar = &two;
        int own[MOST];
        if (0 == where) {
            scalar = device_alloc(4);
            put(scalar, &two, 4);
        }
        for (int i = 0; i < local; ++i) NCCL(ncclRedOpCreatePreMulSum(&own[i], scalar, type, where, ranks[i].comm));
        prepare(type, count);
        EACH(ncclAllReduce(r->send, r->recv, count, type, own[e], r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], where ? "premulsum, host" : "premulsum, device", type, ranks[i].recv, count, scaled, ncclSum);
        for (int i = 0; i < local; ++i) NCCL(ncclRedOpDestroy(own[i], ranks[i].comm));
        if (0 == where) device_free(scalar);
    }
}

static void movements(size_t count)
{
    int size = ranks[0].size;
    block = count;
    for (int type = ncclUint8; type < ncclNumTypes; type += 3) {
        prepare(type, count * size);
        EACH(ncclAllGather(r->send, r->recv, count, type, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allgather", type, ranks[i].recv, count * size, gathered, 0);
        prepare(type, count * size);
        for (int i = 0; i < local; ++i) fill(at(ranks[i].recv, ranks[i].rank * count, type), type, ranks[i].rank, 0, count);
        EACH(ncclAllGather(at(r->recv, r->rank * count, type), r->recv, count, type, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allgather in place", type, ranks[i].recv, count * size, gathered, 0);
        prepare(type, count * size);
        EACH(ncclAlltoAll(r->send, r->recv, count, type, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "alltoall", type, ranks[i].recv, count * size, exchanged, 0);
        for (the_root = 0; the_root < size; ++the_root) {
            prepare(type, count);
            EACH(ncclBroadcast(r->send, r->recv, count, type, the_root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "broadcast", type, ranks[i].recv, count, of_root, 0);
            prepare(type, count);
            EACH(ncclBcast(r->send, count, type, the_root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "bcast", type, ranks[i].send, count, of_root, 0);
            prepare(type, count * size);
            EACH(ncclScatter(r->send, r->recv, count, type, the_root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) compare(&ranks[i], "scatter", type, ranks[i].recv, count, scattered, 0);
            prepare(type, count * size);
            EACH(ncclGather(r->send, r->recv, count, type, the_root, r->comm, r->stream));
            for (int i = 0; i < local; ++i) if (ranks[i].rank == the_root) compare(&ranks[i], "gather", type, ranks[i].recv, count * size, gathered, 0);
        }
        /* An all-to-all of messages, to itself as well, and an allreduce in the same group. */
        prepare(type, count * size);
        NCCL(ncclGroupStart());
        for (int e = 0; e < local; ++e) {
            struct rank *r = &ranks[e];
            NCCL(ncclGroupStart());
            for (int peer = 0; peer < size; ++peer) {
                NCCL(ncclSend(at(r->send, peer * count, type), count, type, peer, r->comm, r->stream));
                NCCL(ncclRecv(at(r->recv, peer * count, type), count, type, peer, r->comm, r->stream));
                NCCL(ncclSend(r->send, 0, type, peer, r->comm, r->stream));
                NCCL(ncclRecv(r->recv, 0, type, peer, r->comm, r->stream));
            }
            NCCL(ncclGroupEnd());
        }
        NCCL(ncclGroupEnd());
        synchronize();
        for (int i = 0; i < local; ++i) compare(&ranks[i], "messages", type, ranks[i].recv, count * size, exchanged, 0);
    }
}

static double three_times(const struct rank *r, int type, int op, size_t i)
{
    (void) op;
    return combined(type, ncclSum, r->size, i) * r->size * r->size;
}

/* Collectives follow each other on the stream without the program waiting. */
static void in_order(size_t count)
{
    prepare(ncclFloat64, count);
    for (int round = 0; round < 3; ++round) {
        NCCL(ncclGroupStart());
        for (int e = 0; e < local; ++e) {
            struct rank *r = &ranks[e];
            void *from = round % 2 ? r->recv : r->send, *into = round % 2 ? r->send : r->recv;
            NCCL(ncclAllReduce(from, into, count, ncclFloat64, ncclSum, r->comm, r->stream));
        }
        NCCL(ncclGroupEnd());
    }
    synchronize();
    for (int i = 0; i < local; ++i) compare(&ranks[i], "three in a row", ncclFloat64, ranks[i].recv, count, three_times, 0);
}

/* Messages of 12 MiB in memory that other processes can't open: results are right, and the communicator has at most 8 MiB. */
static void large(void)
{
    const size_t count = 3 << 20, bytes = count * 4;
    struct rank before[MOST];
    char *small_host = host;
    size_t small_bytes = most_bytes;
    memcpy(before, ranks, sizeof before);
    host = malloc(bytes), most_bytes = bytes;
    for (int i = 0; i < local; ++i) {
        void **places[] = {&ranks[i].send, &ranks[i].recv};
        for (int j = 0; j < 2; ++j) {
            unsigned long long address = 0;
            int (*hip_alloc)(void **, size_t, stream_t) = NULL;
            if (!on_cuda) *(void **) &hip_alloc = find(hip.library, "hipMallocAsync");
            must("allocate", on_cuda ? cuda.alloc_async(&address, bytes, ranks[i].stream) : hip_alloc(places[j], bytes, ranks[i].stream));
            if (on_cuda) *places[j] = (void *) (uintptr_t) address;
        }
        must("synchronize", stream_synchronize(ranks[i].stream));
    }
    block = count / ranks[0].size;
    for (int op = ncclSum; op <= ncclAvg; op += ncclAvg - ncclSum) {
        prepare(ncclFloat32, count);
        EACH(ncclAllReduce(r->send, r->recv, count, ncclFloat32, op, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "large allreduce", ncclFloat32, ranks[i].recv, count, reduced, op);
        prepare(ncclFloat32, block * ranks[0].size);
        EACH(ncclReduceScatter(r->send, r->recv, block, ncclFloat32, op, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "large reduce_scatter", ncclFloat32, ranks[i].recv, block, reduced_block, op);
    }
    prepare(ncclFloat16, count);
    EACH(ncclReduce(r->send, r->recv, count, ncclFloat16, ncclAvg, 0, r->comm, r->stream));
    for (int i = 0; i < local; ++i) if (0 == ranks[i].rank) compare(&ranks[i], "large reduce", ncclFloat16, ranks[i].recv, count, reduced, ncclAvg);
    for (int i = 0; i < local; ++i) {
        unsigned long long all = 0;
        NCCL(ncclCommMemStats(ranks[i].comm, 3, &all));
        if (all > 8ull << 20 || (1 == ranks[i].size && all > 2ull << 20)) {
            fprintf(stderr, "rank %d of %d has %llu KiB of device memory\n", ranks[i].rank, ranks[i].size, all >> 10);
            exit(13);
        }
        ok(ranks[i].rank, "little memory for large messages");
        device_free(ranks[i].send), device_free(ranks[i].recv);
    }
    free(host);
    host = small_host, most_bytes = small_bytes;
    memcpy(ranks, before, sizeof before);
}

/* While collectives are pending, the program's thread does what makes a driver wait for all streams and keep other threads'
 * calls in its context waiting: it loads code, frees memory, and copies to memory that is not pinned. */
static void program_in_the_driver(size_t count)
{
    static const char SOMETHING[] = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry elsewhere() { ret; }\n";
    void *library = on_cuda ? cuda.library : hip.library, *module = NULL, *memory = device_alloc(64);
    int (*load)(void **, const void *) = NULL, (*copy_on_cuda)(void *, unsigned long long, size_t, stream_t) = NULL;
    int (*copy_on_hip)(void *, const void *, size_t, int, stream_t) = NULL;
    *(void **) &load = find(library, on_cuda ? "cuModuleLoadData" : "hipModuleLoadData");
    if (on_cuda) *(void **) &copy_on_cuda = find(library, "cuMemcpyDtoHAsync_v2");
    else *(void **) &copy_on_hip = find(library, "hipMemcpyAsync");
    prepare(ncclFloat32, count);
    for (int round = 0; round < 3; ++round) {
        if (0 == ranks[0].rank && 1 == local) usleep(10000);
        NCCL(ncclGroupStart());
        for (int e = 0; e < local; ++e) NCCL(ncclAllReduce(ranks[e].send, ranks[e].recv, count, ncclFloat32, ncclAvg, ranks[e].comm, ranks[e].stream));
        NCCL(ncclGroupEnd());
        void *from = ranks[0].recv;
        if (0 == round) must("module load", load(&module, SOMETHING));
        if (1 == round) device_free(memory);
        if (2 == round) {
            size_t bytes = count * 4;
            must("copy", on_cuda ? copy_on_cuda(host, (uintptr_t) from, bytes, ranks[0].stream) : copy_on_hip(host, from, bytes, 2, ranks[0].stream));
        }
        synchronize();
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce while the program is in the driver", ncclFloat32, ranks[i].recv, count, reduced, ncclAvg);
    }
}

#include "nccl_graphs.h"

static void questions(void)
{
    for (int i = 0; i < local; ++i) {
        int count = -1, rank = -1, device = -1;
        NCCL(ncclCommCount(ranks[i].comm, &count));
        NCCL(ncclCommUserRank(ranks[i].comm, &rank));
        NCCL(ncclCommCuDevice(ranks[i].comm, &device));
        if (count != ranks[i].size || rank != ranks[i].rank || device < 0) exit(7);
        ok(rank, "questions");
    }
    for (int i = 0; i < local && HAS(ncclCommMemStats) && HAS(ncclCommQueryProperties); ++i) {
        unsigned long long suspendable = 1, persistent = 1, all = 0;
        NCCL(ncclCommMemStats(ranks[i].comm, 0, &suspendable));
        NCCL(ncclCommMemStats(ranks[i].comm, 2, &persistent));
        NCCL(ncclCommMemStats(ranks[i].comm, 3, &all));
        if (suspendable != all || persistent != 0 || all > 8ull << 20) exit(12);
        ncclCommProperties_t properties = {.size = sizeof properties, .magic = 0xcafebeef, .version = 23203, .device_api = 1, .later = {1}};
        NCCL(ncclCommQueryProperties(ranks[i].comm, &properties));
        if (properties.rank != ranks[i].rank || properties.ranks != ranks[i].size || properties.device < 0) exit(12);
        if (properties.device_api || !properties.host_rma || properties.later[0] || properties.size != sizeof properties) exit(12);
        ok(ranks[i].rank, "statistics and properties");
    }
    void *memory = NULL, *registration = NULL;
    NCCL(ncclMemAlloc(&memory, 4096));
    NCCL(ncclCommRegister(ranks[0].comm, memory, 4096, &registration));
    NCCL(ncclCommDeregister(ranks[0].comm, registration));
    NCCL(ncclMemFree(memory));
    ok(ranks[0].rank, "memory");
}

static void wrong_arguments(void)
{
    ncclComm_t comm = ranks[0].comm, none = NULL;
    stream_t stream = ranks[0].stream;
    void *buffer = ranks[0].send, *window = NULL;
    int number = 0;
    ncclUniqueId id;
    ncclConfig_t config = {.size = sizeof config, .magic = 1, .version = 22809, .blocking = 1};
    memset(&id, 0, sizeof id);
    if (careful("what is no communicator and no unique id")) {
        REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, (ncclComm_t) buffer, stream));
        REFUSED(ncclInvalidArgument, ncclCommInitRank(&none, 2, id, 0));
    }
    REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, NULL, stream));
    REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, 1, ncclNumTypes, ncclSum, comm, stream));
    REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, 1, ncclFloat32, 99, comm, stream));
    REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, 1, ncclFloat32, -1, comm, stream));
    REFUSED(ncclInvalidArgument, ncclBroadcast(buffer, buffer, 1, ncclFloat32, ranks[0].size, comm, stream));
    REFUSED(ncclInvalidArgument, ncclReduce(buffer, buffer, 1, ncclFloat32, ncclSum, -1, comm, stream));
    REFUSED(ncclInvalidArgument, ncclSend(buffer, 1, ncclFloat32, ranks[0].size, comm, stream));
    REFUSED(ncclInvalidArgument, ncclCommCount(comm, NULL));
    REFUSED(ncclInvalidArgument, ncclCommCount(NULL, &number));
    REFUSED(ncclInvalidArgument, ncclGetUniqueId(NULL));
    REFUSED(ncclInvalidArgument, ncclCommInitRank(&none, 2, id, 2));
    REFUSED(ncclInvalidArgument, ncclCommInitRank(NULL, 1, id, 0));
    REFUSED(ncclInvalidArgument, ncclCommInitRankConfig(&none, 1, id, 0, &config));
    REFUSED(ncclInvalidUsage, ncclGroupEnd());
    if (careful("no buffer and a count beyond memory")) {
        REFUSED(ncclInvalidArgument, ncclAllReduce(NULL, buffer, 1, ncclFloat32, ncclSum, comm, stream));
        REFUSED(ncclInvalidArgument, ncclAllReduce(buffer, buffer, (size_t) -1, ncclFloat32, ncclSum, comm, stream));
    }
    if (HAS(ncclCommWindowRegister) && careful("windows that can't be")) {
        REFUSED(ncclInvalidArgument, ncclCommWindowRegister(comm, buffer, 8, &window, 64));
        REFUSED(ncclInvalidArgument, ncclCommWindowRegister(comm, NULL, 8, &window, 0));
        REFUSED(ncclInvalidArgument, ncclCommWindowRegister(comm, buffer, 0, &window, 0));
        REFUSED(ncclInvalidArgument, ncclCommWindowRegister(comm, buffer, 8, NULL, 0));
        REFUSED(ncclInvalidArgument, ncclCommWindowDeregister(comm, buffer));
        REFUSED(ncclInvalidArgument, ncclWinGetUserPtr(comm, buffer, &window));
        REFUSED(ncclInvalidArgument, ncclCommDeregister(comm, buffer));
    }
    if (HAS(ncclPutSignal)) {
        ncclWaitSignalDesc_t stranger = {1, ranks[0].size, 0, 0};
        REFUSED(ncclInvalidArgument, ncclPutSignal(buffer, 1, ncclFloat32, 0, NULL, 0, 0, 0, 0, comm, stream));
        REFUSED(ncclInvalidArgument, ncclSignal(ranks[0].size, 0, 0, 0, comm, stream));
        REFUSED(ncclInvalidArgument, ncclSignal(0, -1, 0, 0, comm, stream));
        REFUSED(ncclInvalidArgument, ncclSignal(0, 0, 0, 1, comm, stream));
        REFUSED(ncclInvalidArgument, ncclWaitSignal(1, NULL, comm, stream));
        REFUSED(ncclInvalidArgument, ncclWaitSignal(1, &stranger, comm, stream));
    }
    if (HAS(ncclAllReduceConfig)) {
        ncclCollConfig_t coll = {.size = sizeof coll, .magic = 1, .force = 1};
        REFUSED(ncclInvalidArgument, ncclAllReduceConfig(buffer, buffer, 1, ncclFloat32, ncclSum, comm, stream, &coll));
        coll.magic = 0xcafebeef, coll.algorithms = "ring";
        REFUSED(ncclInvalidUsage, ncclAllGatherConfig(buffer, buffer, 1, ncclFloat32, comm, stream, &coll));
    }
    if (HAS(ncclCommMemStats)) {
        unsigned long long statistic = 0;
        REFUSED(ncclInvalidArgument, ncclCommMemStats(comm, 4, &statistic));
        REFUSED(ncclInvalidArgument, ncclCommSuspend(comm, 2));
        REFUSED(ncclInvalidUsage, ncclCommResume(comm));
        REFUSED(ncclInvalidArgument, ncclCommSuspend(NULL, 1));
    }
    if (HAS(ncclCommRevoke)) REFUSED(ncclInvalidArgument, ncclCommRevoke(comm, 7));
    if (HAS(ncclCommGrow)) {
        REFUSED(ncclInvalidArgument, ncclCommGrow(comm, ranks[0].size, NULL, -1, &none, NULL));
        REFUSED(ncclInvalidArgument, ncclCommGrow(comm, ranks[0].size + 1, NULL, 0, &none, NULL));
        REFUSED(ncclInvalidArgument, ncclCommGrow(NULL, 2, NULL, 1, &none, NULL));
        REFUSED(ncclInvalidArgument, ncclCommGetUniqueId(comm, NULL));
    }
    if (HAS(ncclParamBind)) REFUSED(ncclInvalidUsage, ncclParamBind(&window, "NCCL_DEBUG"));
    NCCL(ncclCommDestroy(NULL));
    REFUSED(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, comm));
    NCCL(ncclGroupStart());
    nccl("a wrong call in a group", ncclAllReduce(buffer, buffer, 1, ncclFloat32, 99, comm, stream), ncclInvalidArgument);
    nccl("the group of a wrong call", ncclGroupEnd(), ncclInvalidArgument);
    ok(0, "a group fails as a whole");
    for (int i = 0; i < local; ++i) NCCL(ncclAllReduce(buffer, buffer, 0, ncclFloat32, ncclSum, ranks[i].comm, stream));
    ok(0, "nothing to do");
}

static void parts(size_t count)
{
    struct rank all[MOST];
    memcpy(all, ranks, sizeof all);
    ncclComm_t parts[MOST];
    NCCL(ncclGroupStart());
    for (int i = 0; i < local; ++i) NCCL(ncclCommSplit(all[i].comm, all[i].rank % 2, -all[i].rank, &parts[i], NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < local; ++i) {
        int size = -1, rank = -1;
        ranks[i].comm = parts[i];
        NCCL(ncclCommCount(parts[i], &size));
        NCCL(ncclCommUserRank(parts[i], &rank));
        int members = (all[i].size + 1 - all[i].rank % 2) / 2;
        if (size != members || rank != members - 1 - all[i].rank / 2) {
            fprintf(stderr, "rank %d of %d is %d of %d in its part\n", all[i].rank, all[i].size, rank, size);
            exit(8);
        }
        ranks[i].rank = rank, ranks[i].size = size;
    }
    prepare(ncclInt32, count);
    EACH(ncclAllReduce(r->send, r->recv, count, ncclInt32, ncclSum, r->comm, r->stream));
    for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce in a part", ncclInt32, ranks[i].recv, count, reduced, ncclSum);
    for (int i = 0; i < local; ++i) NCCL(ncclCommDestroy(parts[i]));
    memcpy(ranks, all, sizeof all);
    NCCL(ncclGroupStart());
    for (int i = 0; i < local; ++i) NCCL(ncclCommSplit(all[i].comm, all[i].rank == 0 ? 0 : -1, 0, &parts[i], NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < local; ++i) {
        if ((NULL == parts[i]) != (all[i].rank != 0)) exit(9);
        if (NULL != parts[i]) NCCL(ncclCommDestroy(parts[i]));
        ok(all[i].rank, "a split without some");
    }
    if (all[0].size < 2 || !HAS(ncclCommShrink)) return;
    int last = all[0].size - 1, kept = 0;
    NCCL(ncclGroupStart());
    for (int i = 0; i < local; ++i) {
        if (all[i].rank != last) {
            NCCL(ncclCommShrink(all[i].comm, &last, 1, &parts[kept], NULL, 0));
            ranks[kept] = all[i];
            kept += 1;
        }
    }
    NCCL(ncclGroupEnd());
    int before = local;
    local = kept;
    for (int i = 0; i < local; ++i) ranks[i].comm = parts[i], ranks[i].size -= 1;
    if (local > 0) {
        prepare(ncclInt32, count);
        EACH(ncclAllReduce(r->send, r->recv, count, ncclInt32, ncclSum, r->comm, r->stream));
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce after shrink", ncclInt32, ranks[i].recv, count, reduced, ncclSum);
    }
    for (int i = 0; i < local; ++i) NCCL(ncclCommDestroy(parts[i]));
    local = before;
    memcpy(ranks, all, sizeof all);
}

/* Rank 0 starts what the others never join, and gives up. */
static void aborts(void)
{
    graph_t executables[MOST];
    RECORD(executables, {
        NCCL(ncclAllReduce(r->send, r->recv, 1, ncclFloat32, ncclSum, r->comm, r->stream));
        NCCL(ncclBcast(r->recv, 1, ncclFloat32, 0, r->comm, r->stream));
    });
    for (int i = 0; i < local; ++i) {
        if (0 == ranks[i].rank && ranks[i].size > 1) {
            must("launch", graph_launch(executables[i], ranks[i].stream));
            NCCL(ncclAllReduce(ranks[i].send, ranks[i].recv, 1, ncclFloat32, ncclSum, ranks[i].comm, ranks[i].stream));
            usleep(20000);
            if (0 == stream_query(ranks[i].stream)) exit(10);
        }
    }
    double begun = seconds();
    for (int i = 0; i < local; ++i) NCCL(ncclCommAbort(ranks[i].comm));
    if (seconds() - begun > 1.0 * local) exit(11);
    for (int i = 0; i < local; ++i) {
        must("synchronize after abort", stream_synchronize(ranks[i].stream));
        if (careful("a freed communicator")) nccl("a freed communicator", ncclAllReduce(ranks[i].send, ranks[i].recv, 1, ncclFloat32, ncclSum, ranks[i].comm, ranks[i].stream), ncclInvalidArgument);
        ok(ranks[i].rank, "abort");
    }
    destroy(executables);
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    reference = NULL != getenv("HETCCL_TESTS_REFERENCE");
    set_up(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int in_one = 0 == strcmp(argv[2], "all");
    int size = atoi(in_one ? argv[3] : argv[4]);
    size_t count = (size_t) atol(in_one ? argv[4] : argv[6]);
    if (size > MOST) return 2;
    most_bytes = (count + 8) * 8 * (size_t) size;
    host = malloc(most_bytes);
    if (in_one) {
        ncclComm_t comms[MOST];
        int devices[MOST] = {0};
        NCCL(ncclCommInitAll(comms, size, devices));
        local = size;
        for (int i = 0; i < size; ++i) ranks[i] = (struct rank){.comm = comms[i], .rank = i, .size = size};
    } else {
        local = 1;
        ranks[0] = (struct rank){.rank = atoi(argv[3]), .size = size};
        ncclUniqueId id = share_id(argv[5], ranks[0].rank);
        ncclConfig_t config = CONFIG(sizeof config, 22809, reference || 0 == ranks[0].rank % 2);
        int made = ncclCommInitRankConfig(&ranks[0].comm, size, id, ranks[0].rank, &config);
        nccl("ncclCommInitRankConfig", made, config.blocking ? ncclSuccess : ncclInProgress);
        while (ncclInProgress == made) {
            NCCL(ncclCommGetAsyncError(ranks[0].comm, &made));
            usleep(100);
        }
        nccl("init", made, ncclSuccess);
    }
    for (int i = 0; i < local; ++i) {
        must("stream", stream_create(&ranks[i].stream, 1));
        ranks[i].send = device_alloc(most_bytes), ranks[i].recv = device_alloc(most_bytes);
    }
    questions();
    reductions(count);
    movements(count);
    in_order(count);
    if (count >= 40000) large();
    program_in_the_driver(count);
    graphs(count);
    wrong_arguments();
    parts(count);
    aborts();
    printf("held %d\n", held);
    return 0;
}
