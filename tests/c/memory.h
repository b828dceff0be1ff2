/* Memory of every kind through the drivers' own functions, loaded at run time: a missing driver is said, not a link error. */
#ifndef HETCCL_MEMORY_H
#define HETCCL_MEMORY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "level_zero.h"

enum memory {
    HOST,
    CUDA,
    CUDA_MANAGED,
    CUDA_POOL,
    CUDA_VIRTUAL,
    CUDA_OPENED,
    CUDA_PINNED,
    ROCM,
    ROCM_MANAGED,
    LEVEL_ZERO,
    LEVEL_ZERO_SHARED,
    LEVEL_ZERO_HOST,
    MEMORIES
};

static const char *const memory_names[MEMORIES] = {
    "host", "cuda",         "cuda-managed", "cuda-pool",         "cuda-virtual",   "cuda-opened", "cuda-pinned",
    "rocm", "rocm-managed", "level-zero",   "level-zero-shared", "level-zero-host"};

/* CUmemAllocationProp: pinned (1), no handle type, on device (1) 0. */
struct allocation_properties {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    void *metadata;
    unsigned char flags[8];
};

/* CUmemAccessDesc: device (1) 0, read and write (3). */
struct access_description {
    struct {
        int type, id;
    } location;
    int flags;
};

static struct {
    void *library, *context;
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
    int (*alloc)(unsigned long long *, size_t), (*free)(unsigned long long);
    int (*alloc_managed)(unsigned long long *, size_t, unsigned);
    int (*alloc_async)(unsigned long long *, size_t, void *);
    int (*host_alloc)(void **, size_t, unsigned), (*host_free)(void *);
    int (*to_device)(unsigned long long, const void *, size_t);
    int (*to_host)(void *, unsigned long long, size_t);
    int (*set_async)(unsigned long long, unsigned char, size_t, void *);
    int (*synchronize)(void);
    int (*granularity)(size_t *, const struct allocation_properties *, int);
    int (*reserve)(unsigned long long *, size_t, size_t, unsigned long long, unsigned long long);
    int (*create)(unsigned long long *, size_t, const struct allocation_properties *, unsigned long long);
    int (*map)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
    int (*set_access)(unsigned long long, size_t, const struct access_description *, size_t);
    int (*unmap)(unsigned long long, size_t), (*release)(unsigned long long), (*unreserve)(unsigned long long, size_t);
    int (*range)(unsigned long long *, size_t *, unsigned long long);
} cuda;

static struct {
    void *library;
    int (*init)(unsigned), (*set_device)(int);
    int (*alloc)(void **, size_t), (*free)(void *), (*alloc_managed)(void **, size_t, unsigned);
    int (*copy)(void *, const void *, size_t, int);
    int (*set_async)(void *, int, size_t, void *);
    int (*synchronize)(void);
} hip;

static inline void must(const char *what, int status)
{
    if (0 != status) {
        fprintf(stderr, "%s failed with %d\n", what, status);
        exit(3);
    }
}

static inline void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (NULL == function) {
        fprintf(stderr, "%s is missing: %s\n", name, dlerror());
        exit(3);
    }
    return function;
}

#include "opened.h"

static inline void load_cuda(void)
{
    if (NULL != cuda.library) {
        return;
    }
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (NULL == cuda.library) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(3);
    }
    *(void **) &cuda.init = find(cuda.library, "cuInit");
    *(void **) &cuda.get = find(cuda.library, "cuDeviceGet");
    *(void **) &cuda.retain = find(cuda.library, "cuDevicePrimaryCtxRetain");
    *(void **) &cuda.set_current = find(cuda.library, "cuCtxSetCurrent");
    *(void **) &cuda.alloc = find(cuda.library, "cuMemAlloc_v2");
    *(void **) &cuda.free = find(cuda.library, "cuMemFree_v2");
    *(void **) &cuda.alloc_managed = find(cuda.library, "cuMemAllocManaged");
    *(void **) &cuda.alloc_async = find(cuda.library, "cuMemAllocAsync");
    *(void **) &cuda.host_alloc = find(cuda.library, "cuMemHostAlloc");
    *(void **) &cuda.host_free = find(cuda.library, "cuMemFreeHost");
    *(void **) &cuda.to_device = find(cuda.library, "cuMemcpyHtoD_v2");
    *(void **) &cuda.to_host = find(cuda.library, "cuMemcpyDtoH_v2");
    *(void **) &cuda.set_async = find(cuda.library, "cuMemsetD8Async");
    *(void **) &cuda.synchronize = find(cuda.library, "cuCtxSynchronize");
    *(void **) &cuda.granularity = find(cuda.library, "cuMemGetAllocationGranularity");
    *(void **) &cuda.reserve = find(cuda.library, "cuMemAddressReserve");
    *(void **) &cuda.create = find(cuda.library, "cuMemCreate");
    *(void **) &cuda.map = find(cuda.library, "cuMemMap");
    *(void **) &cuda.set_access = find(cuda.library, "cuMemSetAccess");
    *(void **) &cuda.unmap = find(cuda.library, "cuMemUnmap");
    *(void **) &cuda.release = find(cuda.library, "cuMemRelease");
    *(void **) &cuda.unreserve = find(cuda.library, "cuMemAddressFree");
    *(void **) &cuda.range = find(cuda.library, "cuMemGetAddressRange_v2");
    int device;
    must("cuInit", cuda.init(0));
    must("cuDeviceGet", cuda.get(&device, 0));
    must("cuDevicePrimaryCtxRetain", cuda.retain(&cuda.context, device));
    must("cuCtxSetCurrent", cuda.set_current(cuda.context));
}

static inline void load_hip(void)
{
    if (NULL != hip.library) {
        return;
    }
    const char *names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
    for (int i = 0; i < 3 && NULL == hip.library; ++i) {
        hip.library = dlopen(names[i], RTLD_NOW);
    }
    if (NULL == hip.library) {
        fprintf(stderr, "no HIP: %s\n", dlerror());
        exit(3);
    }
    *(void **) &hip.init = find(hip.library, "hipInit");
    *(void **) &hip.set_device = find(hip.library, "hipSetDevice");
    *(void **) &hip.alloc = find(hip.library, "hipMalloc");
    *(void **) &hip.free = find(hip.library, "hipFree");
    *(void **) &hip.alloc_managed = find(hip.library, "hipMallocManaged");
    *(void **) &hip.copy = find(hip.library, "hipMemcpy");
    *(void **) &hip.set_async = find(hip.library, "hipMemsetAsync");
    *(void **) &hip.synchronize = find(hip.library, "hipDeviceSynchronize");
    must("hipInit", hip.init(0));
    must("hipSetDevice", hip.set_device(0));
}

static inline int is_cuda(enum memory memory) { return memory >= CUDA && memory <= CUDA_PINNED; }
static inline int is_hip(enum memory memory) { return ROCM == memory || ROCM_MANAGED == memory; }
static inline int is_level_zero(enum memory memory) { return memory >= LEVEL_ZERO; }

/* Memory mapped at an address that was reserved before. */
static inline void *virtual_alloc(size_t bytes)
{
    struct allocation_properties properties = {.type = 1, .location = {1, 0}};
    struct access_description access = {{1, 0}, 3};
    unsigned long long address, handle;
    size_t granularity;
    must("cuMemGetAllocationGranularity", cuda.granularity(&granularity, &properties, 0));
    bytes = (bytes + granularity - 1) / granularity * granularity;
    must("cuMemAddressReserve", cuda.reserve(&address, bytes, 0, 0, 0));
    must("cuMemCreate", cuda.create(&handle, bytes, &properties, 0));
    must("cuMemMap", cuda.map(address, bytes, 0, handle, 0));
    must("cuMemRelease", cuda.release(handle));
    must("cuMemSetAccess", cuda.set_access(address, bytes, &access, 1));
    return (void *) address;
}

static inline void virtual_free(unsigned long long address)
{
    unsigned long long base;
    size_t bytes;
    must("cuMemGetAddressRange", cuda.range(&base, &bytes, address));
    must("cuMemUnmap", cuda.unmap(base, bytes));
    must("cuMemAddressFree", cuda.unreserve(base, bytes));
}

static inline void *memory_alloc(enum memory memory, size_t bytes)
{
    unsigned long long address = 0;
    void *pointer = NULL;
    bytes += 0 == bytes;
    if (is_cuda(memory)) {
        load_cuda();
    } else if (is_hip(memory)) {
        load_hip();
    }
    switch (memory) {
    case CUDA: must("cuMemAlloc", cuda.alloc(&address, bytes)); return (void *) address;
    case CUDA_MANAGED: must("cuMemAllocManaged", cuda.alloc_managed(&address, bytes, 1)); return (void *) address;
    case CUDA_POOL:
        must("cuMemAllocAsync", cuda.alloc_async(&address, bytes, NULL));
        must("cuCtxSynchronize", cuda.synchronize());
        return (void *) address;
    case CUDA_VIRTUAL: return virtual_alloc(bytes);
    case CUDA_OPENED: return opened_alloc(bytes);
    case CUDA_PINNED: must("cuMemHostAlloc", cuda.host_alloc(&pointer, bytes, 0)); return pointer;
    case ROCM: must("hipMalloc", hip.alloc(&pointer, bytes)); return pointer;
    case ROCM_MANAGED: must("hipMallocManaged", hip.alloc_managed(&pointer, bytes, 1)); return pointer;
    case LEVEL_ZERO: return level_zero_alloc(1, 0, bytes);
    case LEVEL_ZERO_SHARED: return level_zero_alloc(1, 1, bytes);
    case LEVEL_ZERO_HOST: return level_zero_alloc(0, 1, bytes);
    default: return malloc(bytes);
    }
}

static inline void memory_free(enum memory memory, void *pointer)
{
    if (CUDA_PINNED == memory) {
        must("cuMemFreeHost", cuda.host_free(pointer));
    } else if (CUDA_VIRTUAL == memory) {
        virtual_free((unsigned long long) pointer);
    } else if (CUDA_OPENED == memory) {
        /* A part of memory that stays. */
    } else if (is_cuda(memory)) {
        must("cuMemFree", cuda.free((unsigned long long) pointer));
    } else if (is_hip(memory)) {
        must("hipFree", hip.free(pointer));
    } else if (is_level_zero(memory)) {
        level_zero_free(pointer);
    } else {
        free(pointer);
    }
}

/* Host memory to a buffer. */
static inline void memory_put(enum memory memory, void *to, const void *from, size_t bytes)
{
    if (0 == bytes) {
        return;
    }
    if (is_cuda(memory) && CUDA_PINNED != memory) {
        must("cuMemcpyHtoD", cuda.to_device((unsigned long long) to, from, bytes));
    } else if (is_hip(memory)) {
        must("hipMemcpy", hip.copy(to, from, bytes, 1));
    } else if (is_level_zero(memory)) {
        level_zero_copy(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

/* A buffer to host memory. */
static inline void memory_get(enum memory memory, void *to, const void *from, size_t bytes)
{
    if (0 == bytes) {
        return;
    }
    if (is_cuda(memory) && CUDA_PINNED != memory) {
        must("cuMemcpyDtoH", cuda.to_host(to, (unsigned long long) from, bytes));
    } else if (is_hip(memory)) {
        must("hipMemcpy", hip.copy(to, from, bytes, 2));
    } else if (is_level_zero(memory)) {
        level_zero_copy(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

/* Queues a fill on the default stream and does not wait for it. Level Zero has no such stream: there the fill is finished. */
static inline void memory_set_later(enum memory memory, void *to, int byte, size_t bytes)
{
    if (is_cuda(memory) && CUDA_PINNED != memory) {
        must("cuMemsetD8Async", cuda.set_async((unsigned long long) to, (unsigned char) byte, bytes, NULL));
    } else if (is_hip(memory)) {
        must("hipMemsetAsync", hip.set_async(to, byte, bytes, NULL));
    } else if (is_level_zero(memory)) {
        level_zero_fill(to, byte, bytes);
    } else {
        memset(to, byte, bytes);
    }
}

/* The kind of this rank in a list such as "cuda,rocm,host", which goes round. */
static inline enum memory memory_of_rank(const char *list, int rank)
{
    char copy[256], *words[32], *rest = copy;
    int n = 0;
    snprintf(copy, sizeof(copy), "%s", list);
    for (char *word = strtok_r(copy, ",", &rest); NULL != word && n < 32; word = strtok_r(NULL, ",", &rest)) {
        words[n++] = word;
    }
    for (int kind = 0; n > 0 && kind < MEMORIES; ++kind) {
        if (0 == strcmp(words[rank % n], memory_names[kind])) {
            return (enum memory) kind;
        }
    }
    fprintf(stderr, "unknown memory in %s; known:", list);
    for (int kind = 0; kind < MEMORIES; ++kind) {
        fprintf(stderr, " %s", memory_names[kind]);
    }
    fprintf(stderr, "\n");
    exit(2);
}

#endif
