/* Streams are late, and in order. Run with a delay of 20 ms. */
#include "gpu.h"
#include <time.h>

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static volatile int *seen;
static int called_driver;

static void note(void *data) {
    *seen = *(volatile int *)data;
    pointer p;
    called_driver = gpuMalloc(&p, 10);
}

int main(void) {
    START();
    stream blocking, other;
    pointer device, pinned_pointer;
    OK(gpuStreamCreate(&blocking, 0));
    OK(gpuStreamCreate(&other, NON_BLOCKING));
    OK(gpuMalloc(&device, 1 << 20));
    OK(gpuHostMalloc(&pinned_pointer, 4096, 0));
    volatile int *pinned = (volatile int *)pinned_pointer;

    /* A copy that is queued behind another has not happened yet; nor has pinned memory been read. */
    pinned[0] = 1;
    pinned[1] = 0;
    OK(gpuMemcpyAsync(device, (pointer)&pinned[0], 4, blocking));
    OK(gpuMemcpyAsync((pointer)&pinned[1], device, 4, blocking));
    EXPECT(gpuStreamQuery(blocking), NOT_READY);
    CHECK(pinned[1] == 0);
    pinned[0] = 2;
    OK(gpuStreamSynchronize(blocking));
    CHECK(pinned[1] == 2);
    OK(gpuStreamQuery(blocking));

    /* Pageable memory is read at the call, and written before it returns. */
    int pageable = 5;
    OK(gpuMemcpyAsync(device, (pointer)&pageable, 4, blocking));
    pageable = 6;
    OK(gpuMemcpyAsync((pointer)&pageable, device, 4, blocking));
    CHECK(pageable == 5);

    /* The null stream waits for blocking streams, and they for it; non-blocking streams do neither. */
    OK(gpuMemsetAsync(device, 1, 4, blocking));
    OK(gpuMemsetAsync(device + 4, 1, 4, other));
    OK(gpuMemcpyAsync((pointer)pinned, device, 8, 0));
    OK(gpuMemsetAsync(device, 3, 4, blocking));
    OK(gpuMemcpyAsync((pointer)&pinned[2], device, 4, 0));
    OK(gpuStreamSynchronize(0));
    CHECK(pinned[0] == 0x01010101 && pinned[2] == 0x03030303);
    double start = now_ms();
    OK(gpuStreamSynchronize(other));
    for (int i = 0; i < 5; i++) OK(gpuMemsetAsync(device, 0, 4, blocking));
    OK(gpuMemsetAsync(device + 4, 7, 4, other));
    start = now_ms();
    OK(gpuStreamSynchronize(other));
    CHECK(now_ms() - start < 80);
    EXPECT(gpuStreamQuery(blocking), NOT_READY);
    EXPECT(gpuStreamQuery(0), NOT_READY);
    OK(gpuDeviceSynchronize());

    /* Events. */
    event first, second, unrecorded;
    float ms;
    OK(gpuEventCreate(&first, 0));
    OK(gpuEventCreate(&second, 0));
    OK(gpuEventCreate(&unrecorded, 0));
    OK(gpuEventQuery(unrecorded));
    OK(gpuEventRecord(first, blocking));
    OK(gpuMemsetAsync(device, 4, 4, blocking));
    OK(gpuEventRecord(second, blocking));
    EXPECT(gpuEventQuery(second), NOT_READY);
    EXPECT(gpuEventElapsedTime(&ms, first, second), NOT_READY);
    EXPECT(gpuEventElapsedTime(&ms, first, unrecorded), INVALID_HANDLE);
    OK(gpuStreamWaitEvent(other, second, 0));
    OK(gpuMemcpyAsync((pointer)&pinned[3], device, 4, other));
    OK(gpuStreamSynchronize(other));
    CHECK(pinned[3] == 0x04040404);
    OK(gpuEventSynchronize(second));
    OK(gpuEventElapsedTime(&ms, first, second));
    CHECK(ms >= 20 && ms < 1000);
    OK(gpuEventDestroy(first));
    EXPECT(gpuEventQuery(first), INVALID_HANDLE);

    /* Values in memory, and host functions. */
    pinned[4] = 0;
    pinned[5] = 0;
    OK(gpuStreamWaitValue32(blocking, (pointer)&pinned[4], 3, 0));
    OK(gpuStreamWriteValue32(blocking, (pointer)&pinned[5], 8, 0));
    usleep(100000);
    CHECK(pinned[5] == 0);
    pinned[4] = 4;
    OK(gpuStreamSynchronize(blocking));
    CHECK(pinned[5] == 8);
    seen = &pinned[6];
    OK(gpuStreamWriteValue32(blocking, device, 77, 0));
    OK(gpuMemcpyAsync((pointer)&pinned[7], device, 4, blocking));
    OK(gpuLaunchHostFunc(blocking, note, (void *)&pinned[7]));
    OK(gpuStreamSynchronize(blocking));
    CHECK(pinned[6] == 77);
#ifdef CUDA
    CHECK(called_driver == NOT_PERMITTED);
#endif

    /* A destroyed stream finishes its work. */
    pinned[8] = 0;
    OK(gpuStreamWriteValue32(other, (pointer)&pinned[8], 1, 0));
    OK(gpuStreamDestroy(other));
    EXPECT(gpuStreamQuery(other), INVALID_HANDLE);
    OK(gpuDeviceSynchronize());
    CHECK(pinned[8] == 1);
    return 0;
}
