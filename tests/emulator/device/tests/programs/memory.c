/* Copies, what a pointer is, memory that runs out. */
#include "gpu.h"

enum { BYTES = 100000 };

static void copies(void) {
    pointer a, b, pinned;
    char from[BYTES], to[BYTES];
    for (int i = 0; i < BYTES; i++) from[i] = (char)(i * 7);
    OK(gpuMalloc(&a, BYTES));
    OK(gpuMalloc(&b, BYTES));
    OK(gpuHostMalloc(&pinned, BYTES, 0));
    OK(gpuMemcpy(a, (pointer)from, BYTES));
    OK(gpuMemcpy(b + 10, a + 5, BYTES - 10));
    memset(to, 0, BYTES);
    OK(gpuMemcpy((pointer)to, b + 10, BYTES - 10));
    CHECK(memcmp(to, from + 5, BYTES - 10) == 0);
    OK(gpuMemset(a, 9, BYTES));
    OK(gpuMemcpy(pinned, a, BYTES));
    CHECK(((char *)pinned)[0] == 9 && ((char *)pinned)[BYTES - 1] == 9);
    EXPECT(gpuMemcpy(a, (pointer)from, BYTES + 1), INVALID_VALUE);
    EXPECT(gpuMemcpy(a + 1, (pointer)from, BYTES), INVALID_VALUE);
    /* System calls refuse device memory. */
    CHECK(write(STDOUT_FILENO, (void *)a, 4) == -1);
    OK(gpuFree(a));
    CHECK(gpuFree(a) != 0);
    EXPECT(gpuMemcpy(a, (pointer)from, 1), INVALID_VALUE);
    OK(gpuFree(b));
    OK(gpuHostFree(pinned));
}

static void attributes(void) {
    struct attributes found;
    pointer a, again, base, pinned, managed, pool;
    size_t bytes;
    char *mine = malloc(10000);
    OK(gpuMalloc(&a, 5000));
    OK(gpuAttributes(&found, a + 4999));
    CHECK(found.type == DEVICE && found.device == 0 && !found.managed);
    EXPECT(gpuAttributes(&found, a + 5000), INVALID_VALUE);
    OK(gpuMemGetAddressRange(&base, &bytes, a + 17));
    CHECK(base == a && bytes == 5000);
    OK(gpuFree(a));
    EXPECT(gpuAttributes(&found, a), INVALID_VALUE);
    OK(gpuMalloc(&again, 3000));
    CHECK(again == a); /* addresses come back */
    OK(gpuMemGetAddressRange(&base, &bytes, a));
    CHECK(bytes == 3000);
    EXPECT(gpuAttributes(&found, a + 4000), INVALID_VALUE);
    OK(gpuFree(again));

    EXPECT(gpuAttributes(&found, (pointer)mine), INVALID_VALUE);
    OK(gpuHostRegister(mine, 10000, 0));
    EXPECT(gpuHostRegister(mine + 100, 100, 0), 712);
    OK(gpuAttributes(&found, (pointer)mine + 9999));
    CHECK(found.type == HOST);
    OK(gpuHostUnregister(mine));
    EXPECT(gpuAttributes(&found, (pointer)mine), INVALID_VALUE);
    EXPECT(gpuHostUnregister(mine), 713);

    OK(gpuHostMalloc(&pinned, 100, 0));
    OK(gpuAttributes(&found, pinned + 50));
    CHECK(found.type == HOST);
    memset((void *)pinned, 1, 100);
    OK(gpuHostFree(pinned));
    EXPECT(gpuAttributes(&found, pinned), INVALID_VALUE);

    OK(gpuMallocManaged(&managed, 100, 1));
    memset((void *)managed, 1, 100);
    OK(gpuAttributes(&found, managed));
    CHECK(found.managed && found.type == MANAGED);
    OK(gpuFree(managed));

    OK(gpuMallocAsync(&pool, 100, 0));
    OK(gpuAttributes(&found, pool));
    CHECK(found.type == DEVICE);
    handle handle;
    EXPECT(gpuIpcGetMemHandle(&handle, pool), INVALID_VALUE);
    OK(gpuFreeAsync(pool, 0));
    OK(gpuDeviceSynchronize());
    EXPECT(gpuAttributes(&found, pool), INVALID_VALUE);
    free(mine);
}

static void limits(void) {
    size_t before, after, total;
    pointer a, b;
    OK(gpuMemGetInfo(&before, &total));
    CHECK(total == 8 << 20 && before == total);
    OK(gpuMalloc(&a, 5 << 20));
    EXPECT(gpuMalloc(&b, 4 << 20), OUT_OF_MEMORY);
    OK(gpuMemGetInfo(&after, &total));
    CHECK(before - after == 5 << 20);
    OK(gpuFree(a));
    OK(gpuMalloc(&b, 8 << 20));
    OK(gpuFree(b));
}

int main(void) {
    START();
    copies();
    attributes();
    limits();
    return 0;
}
