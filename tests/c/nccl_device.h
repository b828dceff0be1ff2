/* What programs of NCCL's interface share: a vendor's device memory and streams, checks, and a unique id by way of a file. */
#ifndef HETCCL_NCCL_DEVICE_H
#define HETCCL_NCCL_DEVICE_H

#include "memory.h"
#include "nccl_api.h"

#include <stdint.h>
#include <time.h>
#include <unistd.h>

static int on_cuda;
static int (*stream_create)(stream_t *, unsigned), (*stream_synchronize)(stream_t), (*stream_query)(stream_t);

static inline void nccl(const char *what, int got, int wanted)
{
    if (got != wanted) {
        fprintf(stderr, "%s gave %d (%s: %s), wanted %d\n", what, got, ncclGetErrorString(got), ncclGetLastError(NULL), wanted);
        exit(4);
    }
}
#define NCCL(call) nccl(#call, call, ncclSuccess)

static inline void *device_alloc(size_t bytes)
{
    unsigned long long address = 0;
    void *pointer = NULL;
    if (on_cuda) {
        must("cuMemAlloc", cuda.alloc(&address, bytes));
        return (void *) (uintptr_t) address;
    }
    must("hipMalloc", hip.alloc(&pointer, bytes));
    return pointer;
}

static inline void device_free(void *pointer)
{
    must("free", on_cuda ? cuda.free((uintptr_t) pointer) : hip.free(pointer));
}

static inline void put(void *to, const void *from, size_t bytes)
{
    must("copy", on_cuda ? cuda.to_device((uintptr_t) to, from, bytes) : hip.copy(to, from, bytes, 1));
    /* The ranks' streams are not ordered with the default stream, on which the copy may still run. */
    must("synchronize", on_cuda ? cuda.synchronize() : hip.synchronize());
}

static inline void get(void *to, const void *from, size_t bytes)
{
    must("copy", on_cuda ? cuda.to_host(to, (uintptr_t) from, bytes) : hip.copy(to, from, bytes, 2));
}

static inline void set_up(const char *vendor)
{
    on_cuda = 0 == strcmp(vendor, "cuda");
    if (on_cuda) {
        load_cuda();
        *(void **) &stream_create = find(cuda.library, "cuStreamCreate");
        *(void **) &stream_synchronize = find(cuda.library, "cuStreamSynchronize");
        *(void **) &stream_query = find(cuda.library, "cuStreamQuery");
    } else {
        load_hip();
        *(void **) &stream_create = find(hip.library, "hipStreamCreateWithFlags");
        *(void **) &stream_synchronize = find(hip.library, "hipStreamSynchronize");
        *(void **) &stream_query = find(hip.library, "hipStreamQuery");
    }
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Bytes that one process leaves for others under a name, whole or not at all. */
static inline void leave_file(const char *name, const void *bytes, size_t len)
{
    char new[4096];
    snprintf(new, sizeof new, "%s.new", name);
    FILE *file = fopen(new, "wb");
    if (NULL == file || 1 != fwrite(bytes, len, 1, file) || 0 != fclose(file) || 0 != rename(new, name)) {
        exit(2);
    }
}

static inline void take_file(const char *name, void *bytes, size_t len)
{
    FILE *file = NULL;
    for (int i = 0; i < 3000 && NULL == (file = fopen(name, "rb")); ++i) {
        usleep(10000);
    }
    if (NULL == file || 1 != fread(bytes, len, 1, file)) {
        exit(2);
    }
    fclose(file);
}

/* The unique id of rank 0, by way of a file. */
static inline ncclUniqueId share_id(const char *name, int rank)
{
    ncclUniqueId id;
    if (0 == rank) {
        NCCL(ncclGetUniqueId(&id));
        leave_file(name, &id, sizeof id);
    } else {
        take_file(name, &id, sizeof id);
    }
    return id;
}

#endif
