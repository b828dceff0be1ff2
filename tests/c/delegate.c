/* Communicators whose calls may go to the vendor's library: the same calls with either, and what only the vendor's has.
 *
 *     delegate cuda|rocm RANK SIZE FILE own|vendor|refused
 *     delegate cuda|rocm RANK SIZE FILE weighted WEIGHT...     averages with these HETCCL_RANK_WEIGHTs, to the bit
 *
 * Rank r uses device r. Prints "ok WHAT" for each check that held, and "refused: TEXT" where making the communicator must fail. */
#include "memory.h"
#include "nccl_api.h"

#include <stdint.h>
#include <unistd.h>

#define COUNT 1000

static int on_cuda;

static void check(const char *what, int holds)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold (%s)\n", what, ncclGetLastError(NULL));
        exit(4);
    }
    printf("ok %s\n", what);
}

static void nccl(const char *what, int got, int wanted)
{
    if (got != wanted) {
        fprintf(stderr, "%s gave %d (%s: %s), wanted %d\n", what, got, ncclGetErrorString(got), ncclGetLastError(NULL), wanted);
        exit(5);
    }
}
#define NCCL(call) nccl(#call, call, ncclSuccess)

static void *device_alloc(size_t bytes)
{
    unsigned long long address = 0;
    void *pointer = NULL;
    must("alloc", on_cuda ? cuda.alloc(&address, bytes) : hip.alloc(&pointer, bytes));
    return on_cuda ? (void *) (uintptr_t) address : pointer;
}

static void use_device(int number)
{
    if (on_cuda) {
        int device;
        load_cuda();
        must("cuDeviceGet", cuda.get(&device, number));
        must("cuDevicePrimaryCtxRetain", cuda.retain(&cuda.context, device));
        must("cuCtxSetCurrent", cuda.set_current(cuda.context));
    } else {
        load_hip();
        must("hipSetDevice", hip.set_device(number));
    }
}

static void put(void *to, const void *from, size_t bytes)
{
    must("copy", on_cuda ? cuda.to_device((uintptr_t) to, from, bytes) : hip.copy(to, from, bytes, 1));
    must("synchronize", on_cuda ? cuda.synchronize() : hip.synchronize());
}

static float *send_buffer, *recv_buffer;
static stream_t stream;

static void wait_for_stream(void)
{
    int (*synchronize)(stream_t);
    *(void **) &synchronize = find(on_cuda ? cuda.library : hip.library, on_cuda ? "cuStreamSynchronize" : "hipStreamSynchronize");
    must("synchronize", synchronize(stream));
}

/* Every rank of the communicator gives its number in it and 1. */
static void sums(const char *what, ncclComm_t comm, int grouped)
{
    static float values[COUNT];
    int rank = -1, size = -1, error = -1;
    NCCL(ncclCommUserRank(comm, &rank));
    NCCL(ncclCommCount(comm, &size));
    for (int i = 0; i < COUNT; ++i) values[i] = (float) (rank + 1 + i);
    put(send_buffer, values, sizeof values);
    if (grouped) NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(send_buffer, recv_buffer, COUNT, ncclFloat32, ncclSum, comm, stream));
    if (grouped) NCCL(ncclGroupEnd());
    wait_for_stream();
    must("copy", on_cuda ? cuda.to_host(values, (uintptr_t) recv_buffer, sizeof values) : hip.copy(values, recv_buffer, sizeof values, 2));
    NCCL(ncclCommGetAsyncError(comm, &error));
    int holds = ncclSuccess == error;
    for (int i = 0; i < COUNT; ++i) holds &= values[i] == (float) (size * (size + 1) / 2 + size * i);
    check(what, holds);
}

static const size_t widths[] = {[ncclInt32] = 4, [ncclInt64] = 8, [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};

/* The element nearest to a value; halves only of what they hold exactly. */
static void encode(int type, double value, void *at)
{
    float narrow = (float) value;
    _Float16 half = (_Float16) value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    uint16_t top = (uint16_t) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    int32_t number = (int32_t) value;
    int64_t large = (int64_t) value;
    const void *from[] = {[ncclInt32] = &number, [ncclInt64] = &large, [ncclFloat16] = &half, [ncclFloat32] = &narrow, [ncclFloat64] = &value, [ncclBfloat16] = &top};
    memcpy(at, from[type], widths[type]);
}

/* Small numbers: products and sums are exact in every type, so that their order does not matter, and the quotient is rounded once. */
static double given(int rank, int i) { return (rank * 3 + i) % 5; }

static void weighted(ncclComm_t comm, int rank, int size, char **weights, int in_place)
{
    static const int types[] = {ncclInt32, ncclInt64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};
    static char values[COUNT * 8], wanted[COUNT * 8];
    double sum = 0, whole = 1;
    for (int r = 0; r < size; ++r) sum += atof(weights[r]), whole *= atof(weights[r]) == (int) atof(weights[r]);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; ++t) {
        int type = types[t];
        for (int i = 0; i < COUNT; ++i) {
            double total = 0;
            for (int r = 0; r < size; ++r) total += atof(weights[r]) * given(r, i);
            encode(type, given(rank, i), values + (size_t) i * widths[type]);
            encode(type, total / sum, wanted + (size_t) i * widths[type]);
        }
        put(send_buffer, values, COUNT * widths[type]);
        void *into = in_place ? send_buffer : recv_buffer;
        int code = ncclAllReduce(send_buffer, into, COUNT, type, ncclAvg, comm, stream);
        if (type < ncclFloat16 && !whole) {
            nccl("integers by halves", code, ncclInvalidUsage);
            check("the reason", NULL != strstr(ncclGetLastError(NULL), "whole weights"));
            continue;
        }
        nccl("a weighted average", code, ncclSuccess);
        wait_for_stream();
        must("copy", on_cuda ? cuda.to_host(values, (uintptr_t) into, COUNT * widths[type]) : hip.copy(values, into, COUNT * widths[type], 2));
        char line[64];
        snprintf(line, sizeof line, "weighted average of type %d%s", type, in_place ? ", in place" : "");
        check(line, 0 == memcmp(values, wanted, COUNT * widths[type]));
    }
    nccl("8-bit integers", ncclAllReduce(send_buffer, recv_buffer, 1, ncclInt8, ncclAvg, comm, stream), ncclInvalidUsage);
    /* Who leaves before the others have asked is gone for their calls. */
    NCCL(ncclAllReduce(send_buffer, recv_buffer, 1, ncclFloat32, ncclSum, comm, stream));
    wait_for_stream();
}

int main(int argc, char **argv)
{
    if (argc < 6) return 2;
    int rank = atoi(argv[2]), size = atoi(argv[3]);
    int vendor = 0 == strcmp(argv[5], "vendor"), refused = 0 == strcmp(argv[5], "refused");
    on_cuda = 0 == strcmp(argv[1], "cuda");
    use_device(rank);
    setvbuf(stdout, NULL, _IOLBF, 0);

    ncclUniqueId id;
    char name[4096];
    snprintf(name, sizeof name, "%s.new", argv[4]);
    if (0 == rank) {
        NCCL(ncclGetUniqueId(&id));
        FILE *file = fopen(name, "wb");
        if (NULL == file || 1 != fwrite(&id, sizeof id, 1, file) || 0 != fclose(file) || 0 != rename(name, argv[4])) return 2;
    } else {
        FILE *file = NULL;
        for (int i = 0; i < 3000 && NULL == (file = fopen(argv[4], "rb")); ++i) usleep(10000);
        if (NULL == file || 1 != fread(&id, sizeof id, 1, file)) return 2;
        fclose(file);
    }
    /* Odd ranks do not wait; rank 2 has no configuration, and makes its communicator in a group. */
    ncclComm_t comm = NULL;
    ncclConfig_t config = CONFIG(sizeof config, 22809, rank % 2 ? 0 : 1);
    int made;
    if (2 == rank) {
        NCCL(ncclGroupStart());
        NCCL(ncclCommInitRank(&comm, size, id, rank));
        made = ncclGroupEnd();
    } else {
        made = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    }
    while (ncclInProgress == made) {
        int polled = ncclCommGetAsyncError(comm, &made);
        if (ncclSuccess != polled) made = polled;
        usleep(100);
    }
    if (refused) {
        check("making the communicator fails", ncclSuccess != made);
        printf("refused: %s\n", ncclGetLastError(NULL));
        return 0;
    }
    nccl("init", made, ncclSuccess);

    int count = -1, own = -1, device = -1;
    NCCL(ncclCommCount(comm, &count));
    NCCL(ncclCommUserRank(comm, &own));
    NCCL(ncclCommCuDevice(comm, &device));
    check("questions", count == size && own == rank && device == rank);
    send_buffer = device_alloc(COUNT * 8), recv_buffer = device_alloc(COUNT * 8);
    int (*stream_create)(stream_t *, unsigned);
    *(void **) &stream_create = find(on_cuda ? cuda.library : hip.library, on_cuda ? "cuStreamCreate" : "hipStreamCreateWithFlags");
    must("stream", stream_create(&stream, 1));
    if (0 == strcmp(argv[5], "weighted")) {
        if (argc < 6 + size) return 2;
        weighted(comm, rank, size, argv + 6, 0);
        weighted(comm, rank, size, argv + 6, 1);
        return 0;
    }
    sums("allreduce", comm, 0);
    sums("allreduce in a group", comm, 1);

    ncclComm_t part = NULL;
    NCCL(ncclGroupStart());
    NCCL(ncclCommSplit(comm, rank % 2, -rank, &part, NULL));
    if (vendor) {
        int error = -1;
        NCCL(ncclCommGetAsyncError(part, &error));
        check("a part that is not made yet", ncclInProgress == error);
    }
    NCCL(ncclGroupEnd());
    sums("allreduce in a part", part, 0);
    NCCL(ncclCommDestroy(part));
    ncclComm_t none = comm;
    NCCL(ncclCommSplit(comm, -1, 0, &none, NULL));
    check("no part", NULL == none);

    /* The vendor's library takes no other memory for windows than its own. */
    void *window = NULL, *memory = NULL;
    ncclTeam_t team = ncclTeamWorld(comm);
    NCCL(ncclMemAlloc(&memory, COUNT * 4));
    int registered = ncclCommWindowRegister(comm, memory, COUNT * 4, &window, 0);
    if (vendor) {
        check("what only the vendor has", ncclSuccess == registered && window == (char *) memory + rank);
        check("a structure from the vendor", team.ranks == size && team.rank == rank && team.stride == 1);
        int all = size - 1;
        nccl("a function that the vendor's version lacks", ncclCommShrink(comm, &all, 1, &part, NULL, 0), ncclInvalidUsage);
        check("the reason", NULL != strstr(ncclGetLastError(NULL), "HETCCL_DELEGATE=0"));
        nccl("the vendor's refusal", ncclAllReduce(send_buffer, recv_buffer, 1, ncclInt8, ncclSum, comm, stream), ncclInvalidArgument);
        check("the vendor's words", NULL != strstr(ncclGetLastError(NULL), "emulated vendor"));
    } else {
        nccl("a window of hetccl's own", registered, ncclSuccess);
        check("a team of hetccl's own", team.ranks == size && team.rank == rank);
        NCCL(ncclCommWindowDeregister(comm, window));
    }
    NCCL(ncclMemFree(memory));
    if (rank % 2) NCCL(ncclCommAbort(comm)); else NCCL(ncclCommDestroy(comm));
    nccl("a freed communicator", ncclCommCount(comm, &count), ncclInvalidArgument);
    check("the reason", NULL != strstr(ncclGetLastError(NULL), "destroyed"));
    return 0;
}
