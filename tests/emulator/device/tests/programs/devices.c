/* Run with no device, or with 2 as the argument says. */
#include "gpu.h"

int main(int count, char **arguments) {
    CHECK(count == 2);
    int devices = -1;
#ifdef CUDA
    pointer p;
    EXPECT(cuMemAlloc_v2(&p, 1), NOT_INITIALIZED);
    if (atoi(arguments[1]) == 0) {
        EXPECT(cuInit(0), NO_DEVICE);
        EXPECT(cuDeviceGetCount(&devices), NOT_INITIALIZED);
        return 0;
    }
    OK(cuInit(0));
    OK(cuDeviceGetCount(&devices));
    CHECK(devices == 2);
#else
    if (atoi(arguments[1]) == 0) {
        EXPECT(hipGetDeviceCount(&devices), NO_DEVICE);
        CHECK(devices == 0);
        CHECK(strcmp(hipGetErrorName(100), "hipErrorNoDevice") == 0);
        return 0;
    }
    OK(hipGetDeviceCount(&devices));
    CHECK(devices == 2);
#endif
    return 0;
}
