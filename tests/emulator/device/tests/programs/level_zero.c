/* Level Zero: memory, lists, events, fences, kernels, memory of another process. Argument: kernels for the host. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(call, expected)                                                             \
    do {                                                                                   \
        unsigned code_ = (unsigned)(call);                                                 \
        if (code_ != (unsigned)(expected)) {                                               \
            printf("%s:%d: %s: %#x, not %#x\n", __FILE__, __LINE__, #call, code_, (unsigned)(expected)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)
#define OK(call) EXPECT(call, 0)
#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);  \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

enum { NOT_READY = 1, INVALID_ARGUMENT = 0x78000004, INVALID_KERNEL_NAME = 0x78000011, NO_MEMORY = 0x70000003 };

typedef uintptr_t object;
typedef struct { char data[64]; } handle;
typedef struct { int stype; const void *next; unsigned flags; } simple;
typedef struct { int stype; const void *next; unsigned flags, ordinal; } device_memory;
typedef struct { int stype; const void *next; unsigned ordinal, index, flags, mode, priority; } queue_description;
typedef struct { int stype; const void *next; unsigned ordinal, flags; } list_description;
typedef struct { int stype; const void *next; unsigned flags, count; } pool_description;
typedef struct { int stype; const void *next; unsigned index, signal, wait; } event_description;
typedef struct { int stype; const void *next; int format; size_t bytes; const void *image; const char *flags; void *constants; } module_description;
typedef struct { int stype; const void *next; unsigned flags; const char *name; } kernel_description;
typedef struct { int stype; void *next; int type; uint64_t id, page; } allocation;
typedef struct { unsigned x, y, z; } groups;

int zeInit(unsigned);
int zeDriverGet(uint32_t *, object *);
int zeDeviceGet(object, uint32_t *, object *);
int zeContextCreate(object, const simple *, object *);
int zeMemAllocDevice(object, const device_memory *, size_t, size_t, object, void **);
int zeMemAllocHost(object, const simple *, size_t, size_t, void **);
int zeMemAllocShared(object, const device_memory *, const simple *, size_t, size_t, object, void **);
int zeMemFree(object, void *);
int zeMemGetAllocProperties(object, const void *, allocation *, object *);
int zeMemGetAddressRange(object, const void *, void **, size_t *);
int zeMemGetIpcHandle(object, const void *, handle *);
int zeMemOpenIpcHandle(object, object, handle, unsigned, void **);
int zeMemCloseIpcHandle(object, const void *);
int zeCommandQueueCreate(object, object, const queue_description *, object *);
int zeCommandQueueExecuteCommandLists(object, uint32_t, object *, object);
int zeCommandQueueSynchronize(object, uint64_t);
int zeCommandListCreate(object, object, const list_description *, object *);
int zeCommandListCreateImmediate(object, object, const queue_description *, object *);
int zeCommandListClose(object);
int zeCommandListDestroy(object);
int zeCommandListHostSynchronize(object, uint64_t);
int zeCommandListAppendMemoryCopy(object, void *, const void *, size_t, object, uint32_t, object *);
int zeCommandListAppendMemoryFill(object, void *, const void *, size_t, size_t, object, uint32_t, object *);
int zeCommandListAppendLaunchKernel(object, object, const groups *, object, uint32_t, object *);
int zeEventPoolCreate(object, const pool_description *, uint32_t, object *, object *);
int zeEventPoolGetIpcHandle(object, handle *);
int zeEventPoolOpenIpcHandle(object, handle, object *);
int zeEventCreate(object, const event_description *, object *);
int zeEventHostSignal(object);
int zeEventHostSynchronize(object, uint64_t);
int zeEventQueryStatus(object);
int zeFenceCreate(object, const simple *, object *);
int zeFenceHostSynchronize(object, uint64_t);
int zeFenceQueryStatus(object);
int zeModuleCreate(object, object, const module_description *, object *, object *);
int zeKernelCreate(object, const kernel_description *, object *);
int zeKernelSetGroupSize(object, uint32_t, uint32_t, uint32_t);
int zeKernelSetArgumentValue(object, uint32_t, size_t, const void *);

static object driver, device, context;

static void start(void) {
    uint32_t count = 0;
    simple description = {0xd, NULL, 0};
    OK(zeInit(0));
    OK(zeDriverGet(&count, NULL));
    CHECK(count == 1);
    OK(zeDriverGet(&count, &driver));
    OK(zeDeviceGet(driver, &count, &device));
    CHECK(count == 1);
    OK(zeContextCreate(driver, &description, &context));
}

static object event(object pool, unsigned index) {
    event_description description = {0x11, NULL, index, 0, 0};
    object made;
    OK(zeEventCreate(pool, &description, &made));
    return made;
}

struct message { handle memory, pool; };

static int opener(int reader, int writer) {
    start();
    struct message message;
    void *memory;
    object pool, list;
    queue_description synchronous = {0xe, NULL, 0, 0, 0, 1, 0};
    int value = 0;
    CHECK(read(reader, &message, sizeof message) == sizeof message);
    OK(zeMemOpenIpcHandle(context, device, message.memory, 0, &memory));
    OK(zeEventPoolOpenIpcHandle(context, message.pool, &pool));
    OK(zeEventHostSynchronize(event(pool, 0), UINT64_MAX));
    OK(zeCommandListCreateImmediate(context, device, &synchronous, &list));
    OK(zeCommandListAppendMemoryCopy(list, &value, memory, 4, 0, 0, NULL));
    CHECK(value == 42);
    OK(zeMemCloseIpcHandle(context, memory));
    CHECK(write(writer, "", 1) == 1);
    return 0;
}

static void kernels(object list, const char *path) {
    static char image[1 << 20];
    FILE *file = fopen(path, "rb");
    module_description description = {0x1b, NULL, 1, fread(image, 1, sizeof image, file), image, NULL, NULL};
    object module, kernel;
    OK(zeModuleCreate(context, device, &description, &module, NULL));
    kernel_description missing = {0x1d, NULL, 0, "missing"}, add = {0x1d, NULL, 0, "add"};
    EXPECT(zeKernelCreate(module, &missing, &kernel), INVALID_KERNEL_NAME);
    OK(zeKernelCreate(module, &add, &kernel));
    float a[100], b[100];
    for (int i = 0; i < 100; i++) a[i] = (float)i, b[i] = 1;
    device_memory plain = {0x15, NULL, 0, 0};
    void *into, *from;
    uint64_t count = 100;
    OK(zeMemAllocDevice(context, &plain, sizeof a, 0, device, &into));
    OK(zeMemAllocDevice(context, &plain, sizeof b, 0, device, &from));
    OK(zeCommandListAppendMemoryCopy(list, into, a, sizeof a, 0, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, from, b, sizeof b, 0, 0, NULL));
    OK(zeKernelSetGroupSize(kernel, 32, 1, 1));
    OK(zeKernelSetArgumentValue(kernel, 0, 8, &into));
    OK(zeKernelSetArgumentValue(kernel, 1, 8, &from));
    OK(zeKernelSetArgumentValue(kernel, 2, 8, &count));
    groups one = {1, 1, 1};
    OK(zeCommandListAppendLaunchKernel(list, kernel, &one, 0, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, a, into, sizeof a, 0, 0, NULL));
    OK(zeCommandListHostSynchronize(list, UINT64_MAX));
    for (int i = 0; i < 100; i++) CHECK(a[i] == (float)i + 1);
}

int main(int arguments, char **argument) {
    if (arguments > 2) return opener(atoi(argument[1]), atoi(argument[2]));
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        char read_end[16], write_end[16];
        snprintf(read_end, sizeof read_end, "%d", there[0]);
        snprintf(write_end, sizeof write_end, "%d", back[1]);
        execl("/proc/self/exe", argument[0], read_end, write_end, NULL);
        _exit(9);
    }
    start();
    device_memory plain = {0x15, NULL, 0, 0};
    simple host = {0x16, NULL, 0};
    void *memory, *pinned, *shared, *base;
    size_t bytes;
    OK(zeMemAllocDevice(context, &plain, 1000, 0, device, &memory));
    OK(zeMemAllocHost(context, &host, 1000, 0, &pinned));
    OK(zeMemAllocShared(context, &plain, &host, 1000, 0, device, &shared));
    EXPECT(zeMemAllocDevice(context, &plain, (size_t)1 << 40, 0, device, &base), NO_MEMORY);
    allocation found = {0x17, NULL, 0, 0, 0};
    object owner;
    OK(zeMemGetAllocProperties(context, (char *)memory + 999, &found, &owner));
    CHECK(found.type == 2 && owner == device);
    OK(zeMemGetAllocProperties(context, pinned, &found, &owner));
    CHECK(found.type == 1);
    OK(zeMemGetAllocProperties(context, shared, &found, &owner));
    CHECK(found.type == 3);
    OK(zeMemGetAllocProperties(context, &found, &found, &owner));
    CHECK(found.type == 0 && owner == 0);
    OK(zeMemGetAddressRange(context, (char *)memory + 7, &base, &bytes));
    CHECK(base == memory && bytes == 1000);
    CHECK(write(STDOUT_FILENO, memory, 4) == -1);

    pool_description shared_pool = {0x10, NULL, 3, 4};
    object pool, list, recorded, queue, fence;
    OK(zeEventPoolCreate(context, &shared_pool, 1, &device, &pool));
    object gate = event(pool, 1), done = event(pool, 2), sent = event(pool, 0);
    queue_description asynchronous = {0xe, NULL, 0, 0, 0, 2, 0};
    list_description plain_list = {0xf, NULL, 0, 0};
    simple fence_description = {0x12, NULL, 0};

    /* An immediate list waits for an event. */
    int value = 7, back_value = 0;
    OK(zeCommandListCreateImmediate(context, device, &asynchronous, &list));
    OK(zeCommandListAppendMemoryCopy(list, memory, &value, 4, 0, 1, &gate));
    OK(zeCommandListAppendMemoryCopy(list, &back_value, memory, 4, done, 0, NULL));
    EXPECT(zeEventHostSynchronize(done, 20000000), NOT_READY);
    EXPECT(zeCommandListHostSynchronize(list, 1000), NOT_READY);
    value = 8;
    OK(zeEventHostSignal(gate));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
    CHECK(back_value == 8);

    /* A list that is executed twice, and a fence. */
    OK(zeCommandQueueCreate(context, device, &asynchronous, &queue));
    OK(zeCommandListCreate(context, device, &plain_list, &recorded));
    int forty_two = 42;
    OK(zeCommandListAppendMemoryFill(recorded, memory, &forty_two, 4, 1000, 0, 0, NULL));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &recorded, 0) != 0);
    OK(zeCommandListClose(recorded));
    OK(zeFenceCreate(queue, &fence_description, &fence));
    EXPECT(zeFenceQueryStatus(fence), NOT_READY);
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &recorded, 0));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &recorded, fence));
    OK(zeFenceHostSynchronize(fence, UINT64_MAX));
    OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    OK(zeCommandListDestroy(recorded));

    kernels(list, argument[1]);

    struct message message;
    char byte;
    OK(zeMemGetIpcHandle(context, memory, &message.memory));
    EXPECT(zeMemOpenIpcHandle(context, device, message.memory, 0, &base), INVALID_ARGUMENT);
    OK(zeEventPoolGetIpcHandle(pool, &message.pool));
    CHECK(write(there[1], &message, sizeof message) == sizeof message);
    usleep(20000);
    OK(zeEventHostSignal(sent));
    CHECK(read(back[0], &byte, 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(zeMemFree(context, memory));
    EXPECT(zeMemFree(context, memory), INVALID_ARGUMENT);
    OK(zeMemFree(context, pinned));
    OK(zeMemFree(context, shared));
    return 0;
}
