/* Both drivers in one process: each knows only its own memory. Argument: whose memory to touch, or none. */
#define CUDA
#include "gpu.h"

int hipInit(unsigned);
int hipMalloc(pointer *, size_t);
int hipFree(pointer);
int hipMemcpy(pointer, pointer, size_t, int);
struct hip_attributes { int type, device; pointer device_pointer, host_pointer; int managed; unsigned flags; };
int hipPointerGetAttributes(struct hip_attributes *, pointer);

int main(int count, char **arguments) {
    START();
    OK(hipInit(0));
    pointer a, b;
    struct hip_attributes found;
    struct attributes cuda_found;
    char from[] = "both", to[5];
    OK(cuMemAlloc_v2(&a, 5));
    OK(hipMalloc(&b, 5));
    EXPECT(hipPointerGetAttributes(&found, a), INVALID_VALUE);
    EXPECT(gpuAttributes(&cuda_found, b), INVALID_VALUE);
    OK(cuMemcpy(a, (pointer)from, 5));
    OK(cuMemcpy((pointer)to, a, 5));
    OK(hipMemcpy(b, (pointer)to, 5, 1));
    memset(to, 0, 5);
    OK(hipMemcpy((pointer)to, b, 5, 2));
    CHECK(strcmp(to, from) == 0);
    if (count == 2) return *(volatile char *)(strcmp(arguments[1], "cuda") == 0 ? a : b);
    OK(cuMemFree_v2(a));
    OK(hipFree(b));
    return 0;
}
