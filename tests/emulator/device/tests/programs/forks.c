/* A child of fork cannot use the driver that its parent has started; the parent goes on. */
#include "gpu.h"
#include <sys/wait.h>

int main(void) {
    START();
    pointer a, b;
    OK(gpuMalloc(&a, 10));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(gpuMalloc(&b, 10), NOT_INITIALIZED);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    handle handle;
    OK(gpuIpcGetMemHandle(&handle, a));
    OK(gpuMemset(a, 1, 10));
    OK(gpuDeviceSynchronize());
    OK(gpuFree(a));
    return 0;
}
