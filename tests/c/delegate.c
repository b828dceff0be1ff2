/* Communicators whose calls may go to the vendor's library: the same calls with either, and what only the vendor's has.
 *
 *     delegate cuda|rocm RANK SIZE FILE own|vendor|refused
 *
 * Rank r uses device r. Prints "ok WHAT" for each check that held, and "refused: TEXT" where making the communicator must fail. */
#include "memory.h"
#include "nccl_api.h"

#include <stdint.h>
#include <unistd.h>

#define COUNT 1000

struct team { int ranks, rank, stride; };
struct team ncclTeamWorld(ncclComm_t);

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
    int (*synchronize)(stream_t);
    *(void **) &synchronize = find(on_cuda ? cuda.library : hip.library, on_cuda ? "cuStreamSynchronize" : "hipStreamSynchronize");
    must("synchronize", synchronize(stream));
    must("copy", on_cuda ? cuda.to_host(values, (uintptr_t) recv_buffer, sizeof values) : hip.copy(values, recv_buffer, sizeof values, 2));
    NCCL(ncclCommGetAsyncError(comm, &error));
    int holds = ncclSuccess == error;
    for (int i = 0; i < COUNT; ++i) holds &= values[i] == (float) (size * (size + 1) / 2 + size * i);
    check(what, holds);
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
    ncclConfig_t config = {.size = sizeof config, .magic = 0xcafebeef, .version = 22809, .blocking = rank % 2 ? 0 : 1};
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
        if (rank % 2 == 0) printf("refused: %s\n", ncclGetLastError(NULL));
        return 0;
    }
    nccl("init", made, ncclSuccess);

    int count = -1, own = -1, device = -1;
    NCCL(ncclCommCount(comm, &count));
    NCCL(ncclCommUserRank(comm, &own));
    NCCL(ncclCommCuDevice(comm, &device));
    check("questions", count == size && own == rank && device == rank);
    send_buffer = device_alloc(COUNT * 4), recv_buffer = device_alloc(COUNT * 4);
    int (*stream_create)(stream_t *, unsigned);
    *(void **) &stream_create = find(on_cuda ? cuda.library : hip.library, on_cuda ? "cuStreamCreate" : "hipStreamCreateWithFlags");
    must("stream", stream_create(&stream, 1));
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

    void *window = NULL;
    struct team team = ncclTeamWorld(comm);
    int registered = ncclCommWindowRegister(comm, send_buffer, COUNT * 4, &window, 0);
    if (vendor) {
        check("what only the vendor has", ncclSuccess == registered && window == (char *) send_buffer + rank);
        check("a structure from the vendor", team.ranks == size && team.rank == rank && team.stride == 1);
        int all = size - 1;
        nccl("a function that the vendor's version lacks", ncclCommShrink(comm, &all, 1, &part, NULL, 0), ncclInvalidUsage);
        check("the reason", NULL != strstr(ncclGetLastError(NULL), "HETCCL_DELEGATE=0"));
        nccl("the vendor's refusal", ncclAllReduce(send_buffer, recv_buffer, 1, ncclInt8, ncclSum, comm, stream), ncclInvalidArgument);
        check("the vendor's words", NULL != strstr(ncclGetLastError(NULL), "emulated vendor"));
    } else {
        nccl("what hetccl has not", registered, ncclInvalidUsage);
        check("the reason", NULL != strstr(ncclGetLastError(NULL), "ncclCommRegister") && team.ranks == 0);
    }
    if (rank % 2) NCCL(ncclCommAbort(comm)); else NCCL(ncclCommDestroy(comm));
    nccl("a freed communicator", ncclCommCount(comm, &count), ncclInvalidArgument);
    check("the reason", NULL != strstr(ncclGetLastError(NULL), "destroyed"));
    return 0;
}
