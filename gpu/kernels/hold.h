/* A stream's wait inside a graph, for devices whose graphs have no memory operations: one thread says that the stream has come
 * here, waits until the host says that it may go on, and takes the host's word back, so that the graph can run again. The
 * words are 32 bits of host memory that the device reaches. */
#ifndef HETCCL_HOLD_H
#define HETCCL_HOLD_H

struct HetcclHoldArgs {
    unsigned *ready, *done;
};

#if defined(__HIP__)
extern "C" __global__ void hetccl_hold(const HetcclHoldArgs args) {
    __hip_atomic_store(args.ready, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
    while (__hip_atomic_load(args.done, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) != 1u) {
        __builtin_amdgcn_s_sleep(8);
    }
    __hip_atomic_store(args.done, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
#else
#include <time.h>

extern "C" __attribute__((visibility("default"))) void hetccl_hold(void **args, const unsigned *, const unsigned *) {
    const HetcclHoldArgs words = *static_cast<const HetcclHoldArgs *>(args[0]);
    __atomic_store_n(words.ready, 1u, __ATOMIC_RELEASE);
    while (__atomic_load_n(words.done, __ATOMIC_ACQUIRE) != 1u) {
        const timespec pause = {0, 20000};
        nanosleep(&pause, nullptr);
    }
    __atomic_store_n(words.done, 0u, __ATOMIC_RELAXED);
}
#endif

#endif // HETCCL_HOLD_H
