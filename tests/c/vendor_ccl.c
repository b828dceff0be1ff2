/* A vendor's NCCL or RCCL for tests: the functions that such a library has, with an allreduce of float sums on emulated
 * devices, ranks meeting in shared memory. Compile with -DCUDA=1 or 0 and -DVERSION=22803; -DWITHOUT_ALLGATHER leaves one out.
 *
 * TEST_CALLS names a file that gets a line for each call; TEST_NO_GPU makes ncclGetUniqueId fail, as without a GPU. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "nccl_api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 8
#define SLOT_BYTES 65536

struct meeting {
    atomic_uint arrived;
    int words[MOST][2];
    char slots[MOST][SLOT_BYTES];
};

struct ncclComm {
    char name[64];
    struct meeting *meeting;
    unsigned rounds, splits;
    int rank, size, device, polls, nonblocking;
};

static const char *last = "";

static void record(const char *call)
{
    const char *path = getenv("TEST_CALLS");
    FILE *file = NULL == path ? NULL : fopen(path, "a");
    if (NULL != file) {
        fprintf(file, "%s\n", call);
        fclose(file);
    }
}

static int wrong(const char *text)
{
    last = text;
    return ncclInvalidArgument;
}

/* The driver's functions: the one that this library is for. */
static void *driver(const char *name)
{
    static void *library;
    if (NULL == library) library = dlopen(CUDA ? "libcuda.so.1" : "libamdhip64.so.6", RTLD_NOW);
    void *found = NULL == library ? NULL : dlsym(library, name);
    if (NULL == found) {
        fprintf(stderr, "the emulated vendor library finds no %s\n", name);
        abort();
    }
    return found;
}

static void synchronize(stream_t stream)
{
    int (*call)(stream_t);
    *(void **) &call = driver(CUDA ? "cuStreamSynchronize" : "hipStreamSynchronize");
    if (0 != call(stream)) abort();
}

static void copy(void *to, const void *from, size_t bytes, int to_host)
{
    int status;
    if (CUDA && to_host) {
        int (*call)(void *, unsigned long long, size_t);
        *(void **) &call = driver("cuMemcpyDtoH_v2");
        status = call(to, (uintptr_t) from, bytes);
    } else if (CUDA) {
        int (*call)(unsigned long long, const void *, size_t);
        *(void **) &call = driver("cuMemcpyHtoD_v2");
        status = call((uintptr_t) to, from, bytes);
    } else {
        int (*call)(void *, const void *, size_t, int);
        *(void **) &call = driver("hipMemcpy");
        status = call(to, from, bytes, to_host ? 2 : 1);
    }
    if (0 != status) abort();
}

static int current_device(void)
{
    int device = -1, (*call)(int *);
    *(void **) &call = driver(CUDA ? "cuCtxGetDevice" : "hipGetDevice");
    return 0 == call(&device) ? device : -1;
}

static struct meeting *meet(const char *name)
{
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || 0 != ftruncate(file, sizeof(struct meeting))) abort();
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return MAP_FAILED == meeting ? NULL : meeting;
}

/* Each round has two halves: everybody has said something; everybody has read it. */
static void arrive(ncclComm_t comm) { atomic_fetch_add(&comm->meeting->arrived, 1); }

static void wait_for_all(ncclComm_t comm)
{
    comm->rounds += 1;
    while (atomic_load(&comm->meeting->arrived) < comm->rounds * (unsigned) comm->size) usleep(50);
}

static ncclComm_t create(const char *name, int rank, int size)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    snprintf(comm->name, sizeof comm->name, "%s", name);
    comm->meeting = meet(name), comm->rank = rank, comm->size = size, comm->device = current_device();
    arrive(comm);
    wait_for_all(comm);
    return comm;
}

/* What waits for the end of the group. */
static _Thread_local struct { const void *send; void *recv; size_t count; ncclComm_t comm; stream_t stream; } queued[MOST];
static _Thread_local struct { ncclComm_t comm, *place; int color, key; } splits[MOST];
static _Thread_local int depth, queued_len, splits_len;

static int carry_out(void)
{
    static float mine[SLOT_BYTES / 4];
    for (int i = 0; i < queued_len; ++i) {
        synchronize(queued[i].stream);
        copy(queued[i].comm->meeting->slots[queued[i].comm->rank], queued[i].send, queued[i].count * 4, 1);
        arrive(queued[i].comm);
    }
    for (int i = 0; i < queued_len; ++i) {
        ncclComm_t comm = queued[i].comm;
        wait_for_all(comm);
        memset(mine, 0, sizeof mine);
        for (int rank = 0; rank < comm->size; ++rank)
            for (size_t at = 0; at < queued[i].count; ++at) mine[at] += ((float *) comm->meeting->slots[rank])[at];
        copy(queued[i].recv, mine, queued[i].count * 4, 0);
        arrive(comm);
    }
    for (int i = 0; i < queued_len; ++i) wait_for_all(queued[i].comm);
    queued_len = 0;
    for (int i = 0; i < splits_len; ++i) {
        ncclComm_t comm = splits[i].comm;
        comm->meeting->words[comm->rank][0] = splits[i].color, comm->meeting->words[comm->rank][1] = splits[i].key;
        arrive(comm);
        wait_for_all(comm);
        int rank = 0, size = 0;
        for (int other = 0; other < comm->size; ++other) {
            int *words = comm->meeting->words[other];
            size += words[0] == splits[i].color;
            rank += words[0] == splits[i].color && (words[1] < splits[i].key || (words[1] == splits[i].key && other < comm->rank));
        }
        arrive(comm);
        wait_for_all(comm);
        comm->splits += 1;
        char name[64];
        snprintf(name, sizeof name, "%.40s-%u-%d", comm->name, comm->splits, splits[i].color);
        if (splits[i].color >= 0) *splits[i].place = create(name, rank, size);
    }
    splits_len = 0;
    return ncclSuccess;
}

int ncclGetVersion(int *version) { *version = VERSION; return ncclSuccess; }

int ncclGetUniqueId(ncclUniqueId *id)
{
    record("ncclGetUniqueId");
    if (NULL != getenv("TEST_NO_GPU")) return ncclUnhandledCudaError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/hetccl-vendor-%d", (int) getpid());
    return ncclSuccess;
}

const char *ncclGetErrorString(int code) { return ncclSuccess == code ? "no error" : "the emulated vendor's refusal"; }
const char *ncclGetLastError(ncclComm_t comm) { (void) comm; return last; }

int ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    record("ncclCommInitRank");
    *comm = create(id.internal, rank, size);
    return ncclSuccess;
}

int ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    record("ncclCommInitRankConfig");
    *comm = create(id.internal, rank, size);
    (*comm)->nonblocking = 0 == config->blocking;
    (*comm)->polls = 3;
    return (*comm)->nonblocking ? ncclInProgress : ncclSuccess;
}

int ncclCommGetAsyncError(ncclComm_t comm, int *error)
{
    *error = comm->nonblocking && comm->polls-- > 0 ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

int ncclCommDestroy(ncclComm_t comm)
{
    record("ncclCommDestroy");
    if (0 == comm->rank) shm_unlink(comm->name);
    munmap(comm->meeting, sizeof *comm->meeting);
    free(comm);
    return ncclSuccess;
}

int ncclCommAbort(ncclComm_t comm)
{
    record("ncclCommAbort");
    return ncclCommDestroy(comm);
}

int ncclCommFinalize(ncclComm_t comm) { (void) comm; record("ncclCommFinalize"); return ncclSuccess; }
int ncclCommCount(ncclComm_t comm, int *count) { *count = comm->size; return ncclSuccess; }
int ncclCommUserRank(ncclComm_t comm, int *rank) { *rank = comm->rank; return ncclSuccess; }
int ncclCommCuDevice(ncclComm_t comm, int *device) { *device = comm->device; return ncclSuccess; }

int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *new, ncclConfig_t *config)
{
    (void) config;
    record("ncclCommSplit");
    *new = NULL;
    splits[splits_len].comm = comm, splits[splits_len].place = new, splits[splits_len].color = color, splits[splits_len].key = key;
    splits_len += 1;
    return depth > 0 ? ncclSuccess : carry_out();
}

int ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, void **window, int flags)
{
    (void) bytes, (void) flags;
    record("ncclCommWindowRegister");
    *window = (char *) buffer + comm->rank;
    return ncclSuccess;
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) { record("ncclTeamWorld"); return (ncclTeam_t){comm->size, comm->rank, 1}; }

int ncclGroupStart(void) { depth += 1; return ncclSuccess; }
int ncclGroupEnd(void) { record("ncclGroupEnd"); depth -= 1; return depth > 0 ? ncclSuccess : carry_out(); }

/* What the library asks itself, led to the library in front of it, as was seen of NCCL 2.28 under PyTorch. */
static int is_ready(ncclComm_t comm)
{
    int error = ncclSuccess;
    int (*ask)(ncclComm_t, int *) = (int (*)(ncclComm_t, int *)) dlsym(RTLD_DEFAULT, "ncclCommGetAsyncError");
    return NULL == ask || (ncclSuccess == ask(comm, &error) && ncclSuccess == error);
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, stream_t stream)
{
    record("ncclAllReduce");
    if (!is_ready(comm)) return wrong("the emulated vendor was led astray");
    if (ncclFloat32 != type || ncclSum != op || count > SLOT_BYTES / 4) return wrong("the emulated vendor sums floats only");
    queued[queued_len].send = send, queued[queued_len].recv = recv, queued[queued_len].count = count;
    queued[queued_len].comm = comm, queued[queued_len].stream = stream;
    queued_len += 1;
    return depth > 0 ? ncclSuccess : carry_out();
}

#define NOTHING(name, ...) int name(__VA_ARGS__) { record(#name); return wrong("the emulated vendor has an allreduce only"); }
NOTHING(ncclReduce, const void *a, void *b, size_t c, int d, int e, int f, ncclComm_t g, stream_t h)
NOTHING(ncclReduceScatter, const void *a, void *b, size_t c, int d, int e, ncclComm_t f, stream_t g)
NOTHING(ncclBroadcast, const void *a, void *b, size_t c, int d, int e, ncclComm_t f, stream_t g)
NOTHING(ncclBcast, void *a, size_t b, int c, int d, ncclComm_t e, stream_t f)
#ifndef WITHOUT_ALLGATHER
NOTHING(ncclAllGather, const void *a, void *b, size_t c, int d, ncclComm_t e, stream_t f)
#endif
NOTHING(ncclSend, const void *a, size_t b, int c, int d, ncclComm_t e, stream_t f)
NOTHING(ncclRecv, void *a, size_t b, int c, int d, ncclComm_t e, stream_t f)
