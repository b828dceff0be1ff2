/* Level Zero memory, for memory.h. Structures begin with their kind and a null pointer. */
#ifndef HETCCL_LEVEL_ZERO_H
#define HETCCL_LEVEL_ZERO_H

#include <stdint.h>

struct level_zero_flags {
    int kind;
    const void *next;
    unsigned flags, ordinal;
};

struct level_zero_queue {
    int kind;
    const void *next;
    unsigned ordinal, index, flags, mode, priority;
};

static struct {
    void *library, *context, *device, *list;
    int (*init)(unsigned), (*drivers)(uint32_t *, void **), (*devices)(void *, uint32_t *, void **);
    int (*create_context)(void *, const struct level_zero_flags *, void **);
    int (*create_list)(void *, void *, const struct level_zero_queue *, void **);
    int (*alloc_device)(void *, const struct level_zero_flags *, size_t, size_t, void *, void **);
    int (*alloc_host)(void *, const struct level_zero_flags *, size_t, size_t, void **);
    int (*alloc_shared)(void *, const struct level_zero_flags *, const struct level_zero_flags *, size_t, size_t, void *,
                        void **);
    int (*free)(void *, void *);
    int (*copy)(void *, void *, const void *, size_t, void *, uint32_t, void **);
    int (*fill)(void *, void *, const void *, size_t, size_t, void *, uint32_t, void **);
} level_zero;

static inline void must(const char *what, int status);
static inline void *find(void *library, const char *name);

/* A context of the program's own, and a list whose commands are finished when they return. */
static inline void load_level_zero(void)
{
    if (NULL != level_zero.library) {
        return;
    }
    level_zero.library = dlopen("libze_loader.so.1", RTLD_NOW);
    if (NULL == level_zero.library) {
        fprintf(stderr, "no Level Zero: %s\n", dlerror());
        exit(3);
    }
    *(void **) &level_zero.init = find(level_zero.library, "zeInit");
    *(void **) &level_zero.drivers = find(level_zero.library, "zeDriverGet");
    *(void **) &level_zero.devices = find(level_zero.library, "zeDeviceGet");
    *(void **) &level_zero.create_context = find(level_zero.library, "zeContextCreate");
    *(void **) &level_zero.create_list = find(level_zero.library, "zeCommandListCreateImmediate");
    *(void **) &level_zero.alloc_device = find(level_zero.library, "zeMemAllocDevice");
    *(void **) &level_zero.alloc_host = find(level_zero.library, "zeMemAllocHost");
    *(void **) &level_zero.alloc_shared = find(level_zero.library, "zeMemAllocShared");
    *(void **) &level_zero.free = find(level_zero.library, "zeMemFree");
    *(void **) &level_zero.copy = find(level_zero.library, "zeCommandListAppendMemoryCopy");
    *(void **) &level_zero.fill = find(level_zero.library, "zeCommandListAppendMemoryFill");
    const struct level_zero_flags context = {0xd, NULL, 0, 0};
    const struct level_zero_queue synchronous = {0xe, NULL, 0, 0, 0, 1, 0};
    uint32_t one = 1;
    void *driver;
    must("zeInit", level_zero.init(0));
    must("zeDriverGet", level_zero.drivers(&one, &driver));
    must("zeDeviceGet", level_zero.devices(driver, &one, &level_zero.device));
    must("zeContextCreate", level_zero.create_context(driver, &context, &level_zero.context));
    must("zeCommandListCreateImmediate",
         level_zero.create_list(level_zero.context, level_zero.device, &synchronous, &level_zero.list));
}

static inline void *level_zero_alloc(int device, int host, size_t bytes)
{
    const struct level_zero_flags device_memory = {0x15, NULL, 0, 0}, host_memory = {0x16, NULL, 0, 0};
    void *pointer = NULL;
    load_level_zero();
    if (device && host) {
        must("zeMemAllocShared", level_zero.alloc_shared(level_zero.context, &device_memory, &host_memory, bytes, 0,
                                                         level_zero.device, &pointer));
    } else if (device) {
        must("zeMemAllocDevice",
             level_zero.alloc_device(level_zero.context, &device_memory, bytes, 0, level_zero.device, &pointer));
    } else {
        must("zeMemAllocHost", level_zero.alloc_host(level_zero.context, &host_memory, bytes, 0, &pointer));
    }
    return pointer;
}

static inline void level_zero_free(void *pointer) { must("zeMemFree", level_zero.free(level_zero.context, pointer)); }

static inline void level_zero_copy(void *to, const void *from, size_t bytes)
{
    must("zeCommandListAppendMemoryCopy", level_zero.copy(level_zero.list, to, from, bytes, NULL, 0, NULL));
}

static inline void level_zero_fill(void *to, int byte, size_t bytes)
{
    const unsigned char pattern = (unsigned char) byte;
    must("zeCommandListAppendMemoryFill", level_zero.fill(level_zero.list, to, &pattern, 1, bytes, NULL, 0, NULL));
}

#endif
