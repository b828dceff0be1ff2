/* Run with HETCCL_EMULATOR_FAIL set: the second allocation is out of memory, the first copy is unknown. */
#include "gpu.h"

int main(void) {
    START();
    pointer a, b;
    char byte = 0;
    OK(gpuMalloc(&a, 10));
    EXPECT(gpuMalloc(&b, 10), OUT_OF_MEMORY);
#ifdef HIP
    EXPECT(hipGetLastError(), OUT_OF_MEMORY);
    OK(hipGetLastError());
#endif
    OK(gpuMalloc(&b, 10));
    EXPECT(gpuMemcpy(a, (pointer)&byte, 1), 999);
    OK(gpuMemcpy(a, (pointer)&byte, 1));
    return 0;
}
