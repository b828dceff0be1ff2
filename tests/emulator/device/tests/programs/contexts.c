/* CUDA only: contexts, several devices, virtual memory, functions by name. */
#include "gpu.h"

int cuCtxGetCurrent(uintptr_t *);
int cuCtxCreate_v2(uintptr_t *, unsigned, int);
int cuCtxDestroy_v2(uintptr_t);
int cuCtxPushCurrent_v2(uintptr_t);
int cuCtxPopCurrent_v2(uintptr_t *);
int cuCtxGetDevice(int *);
int cuCtxEnablePeerAccess(uintptr_t, unsigned);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuDeviceGetUuid_v2(char *, int);
int cuDeviceCanAccessPeer(int *, int, int);
int cuMemcpyPeer(pointer, uintptr_t, pointer, uintptr_t, size_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuPointerGetAttributes(unsigned, int *, void **, pointer);
int cuGetErrorName(int, const char **);
struct location { int kind, number; };
struct properties { int kind, handles; struct location location; void *windows; char flags[8]; };
struct access { struct location location; int flags; };
int cuMemGetAllocationGranularity(size_t *, const struct properties *, int);
int cuMemCreate(uint64_t *, size_t, const struct properties *, uint64_t);
int cuMemAddressReserve(pointer *, size_t, size_t, pointer, uint64_t);
int cuMemMap(pointer, size_t, size_t, uint64_t, uint64_t);
int cuMemSetAccess(pointer, size_t, const struct access *, size_t);
int cuMemUnmap(pointer, size_t);
int cuMemRelease(uint64_t);
int cuMemAddressFree(pointer, size_t);

static void virtual_memory(void) {
    struct properties properties = {.kind = 1, .location = {1, 0}};
    struct access access = {{1, 0}, 3};
    size_t grain;
    uint64_t physical;
    pointer p, base;
    size_t bytes;
    char data[4] = {1, 2, 3, 4}, back[4];
    OK(cuMemGetAllocationGranularity(&grain, &properties, 0));
    OK(cuMemCreate(&physical, 2 * grain, &properties, 0));
    OK(cuMemAddressReserve(&p, 4 * grain, 0, 0, 0));
    OK(cuMemMap(p + grain, 2 * grain, 0, physical, 0));
    EXPECT(cuMemMap(p + 2 * grain, grain, 0, physical, 0), INVALID_VALUE);
    EXPECT(gpuMemcpy(p + grain, (pointer)data, 4), INVALID_VALUE); /* no access yet */
    OK(cuMemSetAccess(p + grain, 2 * grain, &access, 1));
    OK(gpuMemcpy(p + grain, (pointer)data, 4));
    OK(gpuMemcpy((pointer)back, p + grain, 4));
    CHECK(memcmp(data, back, 4) == 0);
    OK(gpuMemGetAddressRange(&base, &bytes, p + grain + 5));
    CHECK(base == p + grain && bytes == 2 * grain);
    OK(cuMemRelease(physical));
    EXPECT(cuMemAddressFree(p, 4 * grain), INVALID_VALUE);
    OK(cuMemUnmap(p + grain, 2 * grain));
    EXPECT(gpuMemcpy(p + grain, (pointer)data, 4), INVALID_VALUE);
    OK(cuMemAddressFree(p, 4 * grain));
}

int main(void) {
    uintptr_t first, second, made, current;
    pointer a, b;
    int device, active, can;
    unsigned flags;
    OK(cuInit(0));
    EXPECT(gpuMalloc(&a, 1), INVALID_CONTEXT);
    EXPECT(gpuDeviceSynchronize(), INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(first));
    OK(gpuMalloc(&a, 100));
    OK(cuCtxPushCurrent_v2(second));
    OK(gpuMalloc(&b, 100));
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    struct attributes found;
    OK(gpuAttributes(&found, b));
    CHECK(found.device == 1);
    OK(gpuAttributes(&found, a));
    CHECK(found.device == 0);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can);
    OK(cuCtxEnablePeerAccess(first, 0));
    EXPECT(cuCtxEnablePeerAccess(first, 0), 704);
    OK(cuMemcpyPeer(b, second, a, first, 100));
    OK(cuCtxPopCurrent_v2(&current));
    CHECK(current == second);
    OK(cuCtxCreate_v2(&made, 0, 0));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == made);
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == first);

    /* Several attributes at once succeed for any pointer. */
    int wanted[] = {2, 1}, type = 7;
    uintptr_t owner = 7;
    void *into[] = {&type, &owner};
    OK(cuPointerGetAttributes(2, wanted, into, (pointer)&type));
    CHECK(type == 0 && owner == 0);
    OK(cuPointerGetAttributes(2, wanted, into, b));
    CHECK(type == DEVICE && owner == second);

    virtual_memory();

    char one[16], two[16];
    const char *name;
    OK(cuDeviceGetUuid_v2(one, 0));
    OK(cuDeviceGetUuid_v2(two, 1));
    CHECK(memcmp(one, two, 16) != 0);
    OK(cuGetErrorName(201, &name));
    CHECK(strcmp(name, "CUDA_ERROR_INVALID_CONTEXT") == 0);
    void *function;
    int status;
    OK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status));
    CHECK(function == (void *)cuMemAlloc_v2 && status == 0);
    OK(cuGetProcAddress_v2("cuCtxCreate", &function, 11000, 0, &status));
    CHECK(function == (void *)cuCtxCreate_v2);
    OK(cuGetProcAddress_v2("cuMemcpyAsync", &function, 12000, 2, &status));
    CHECK(function && function != (void *)cuMemcpyAsync);
    EXPECT(cuGetProcAddress_v2("cuNothing", &function, 12000, 0, &status), NOT_FOUND);
    CHECK(status == 1);

    /* The last release takes the context and its memory away. */
    OK(cuDevicePrimaryCtxRelease_v2(1));
    EXPECT(cuDevicePrimaryCtxRelease_v2(1), INVALID_CONTEXT);
    EXPECT(gpuAttributes(&found, b), INVALID_VALUE);
    EXPECT(cuCtxPushCurrent_v2(second), INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(gpuMalloc(&a, 1), 709);
    return 0;
}
