/* Kernels of a shared object given as a path and as bytes, and of HETCCL_EMULATOR_KERNELS. Argument: the object. */
#include "gpu.h"

struct many { pointer into; uint32_t values[100]; };

static void add(uintptr_t module, stream stream) {
    enum { COUNT = 1000 };
    float a[COUNT], b[COUNT];
    for (int i = 0; i < COUNT; i++) a[i] = (float)i, b[i] = 0.5f;
    pointer into, from;
    uintptr_t kernel;
    uint64_t count = COUNT;
    OK(gpuMalloc(&into, sizeof a));
    OK(gpuMalloc(&from, sizeof b));
    OK(gpuMemcpy(into, (pointer)a, sizeof a));
    OK(gpuMemcpy(from, (pointer)b, sizeof b));
    OK(gpuDeviceSynchronize());
    OK(gpuModuleGetFunction(&kernel, module, "add"));
    void *arguments[] = {&into, &from, &count};
    pointer result = into;
    OK(gpuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
    count = 0; /* arguments were copied at the launch */
    into = 0;
    OK(gpuStreamSynchronize(stream));
    OK(gpuMemcpy((pointer)a, result, sizeof a));
    for (int i = 0; i < COUNT; i++) CHECK(a[i] == (float)i + 0.5f);
    OK(gpuFree(result));
    OK(gpuFree(from));
}

static void store(uintptr_t module, stream stream) {
    struct many many;
    uint32_t back[100];
    uintptr_t kernel;
    OK(gpuMalloc(&many.into, sizeof back));
    for (int i = 0; i < 100; i++) many.values[i] = 3 * i;
    OK(gpuModuleGetFunction(&kernel, module, "store"));
    void *arguments[] = {&many};
    OK(gpuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    many.values[99] = 0;
    OK(gpuStreamSynchronize(stream));
    OK(gpuMemcpy((pointer)back, many.into, sizeof back));
    for (int i = 0; i < 100; i++) CHECK(back[i] == 3u * i);
    /* Device memory is closed again. */
    CHECK(write(STDOUT_FILENO, (void *)many.into, 4) == -1);
    OK(gpuFree(many.into));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    START();
    uintptr_t from_file, from_bytes, elsewhere, kernel;
    stream stream;
    OK(gpuStreamCreate(&stream, NON_BLOCKING));
    OK(gpuModuleLoad(&from_file, arguments[1]));
    static char image[1 << 20];
    FILE *file = fopen(arguments[1], "rb");
    CHECK(file && fread(image, 1, sizeof image, file) > 0);
    OK(gpuModuleLoadData(&from_bytes, image));
    OK(gpuModuleLoadData(&elsewhere, ".version 7.0\n.target sm_70\n"));
    uintptr_t modules[] = {from_file, from_bytes, elsewhere};
    for (int i = 0; i < 3; i++) {
        add(modules[i], stream);
        store(modules[i], stream);
    }
    EXPECT(gpuModuleGetFunction(&kernel, from_bytes, "missing"), NOT_FOUND);
    EXPECT(gpuModuleGetFunction(&kernel, from_bytes, "write"), NOT_FOUND); /* of the C library */
    OK(gpuModuleGetFunction(&kernel, from_bytes, "store"));
    void *extra[] = {(void *)1, image, (void *)0};
    EXPECT(gpuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, extra), NOT_SUPPORTED);
    EXPECT(gpuLaunchKernel(kernel, 0, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), INVALID_VALUE);
    for (int i = 0; i < 3; i++) OK(gpuModuleUnload(modules[i]));
    return 0;
}
