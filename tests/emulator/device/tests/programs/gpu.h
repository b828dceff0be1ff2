/* One vocabulary for the functions that CUDA's driver API and HIP share. Compile with -DCUDA or -DHIP. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uintptr_t pointer;
typedef uintptr_t stream;
typedef uintptr_t event;
typedef struct { char bytes[64]; } handle;

#define EXPECT(call, expected)                                                              \
    do {                                                                                    \
        int code_ = (call);                                                                 \
        if (code_ != (expected)) {                                                          \
            printf("%s:%d: %s: %d, not %d\n", __FILE__, __LINE__, #call, code_, expected);  \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) EXPECT(call, 0)
#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
};
enum { HOST = 1, DEVICE = 2 };
enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, INTERPROCESS = 4 };

#ifdef CUDA
#define START()                                 \
    do {                                        \
        uintptr_t context;                      \
        OK(cuInit(0));                          \
        OK(cuDevicePrimaryCtxRetain(&context, 0)); \
        OK(cuCtxSetCurrent(context));           \
    } while (0)
int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDevicePrimaryCtxRetain(uintptr_t *, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(uintptr_t);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(pointer *, size_t);
int cuMemFree_v2(pointer);
int cuMemHostAlloc(pointer *, size_t, unsigned);
int cuMemFreeHost(pointer);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);
int cuMemAllocManaged(pointer *, size_t, unsigned);
int cuMemAllocAsync(pointer *, size_t, stream);
int cuMemFreeAsync(pointer, stream);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemGetAddressRange_v2(pointer *, size_t *, pointer);
int cuMemcpy(pointer, pointer, size_t);
int cuMemcpyAsync(pointer, pointer, size_t, stream);
int cuMemsetD8_v2(pointer, unsigned char, size_t);
int cuMemsetD8Async(pointer, unsigned char, size_t, stream);
int cuMemsetD32Async(pointer, unsigned, size_t, stream);
int cuStreamCreate(stream *, unsigned);
int cuStreamDestroy_v2(stream);
int cuStreamSynchronize(stream);
int cuStreamQuery(stream);
int cuStreamWaitEvent(stream, event, unsigned);
int cuStreamWaitValue32_v2(stream, pointer, uint32_t, unsigned);
int cuStreamWriteValue32_v2(stream, pointer, uint32_t, unsigned);
int cuLaunchHostFunc(stream, void (*)(void *), void *);
int cuEventCreate(event *, unsigned);
int cuEventDestroy_v2(event);
int cuEventRecord(event, stream);
int cuEventQuery(event);
int cuEventSynchronize(event);
int cuEventElapsedTime(float *, event, event);
int cuIpcGetMemHandle(handle *, pointer);
int cuIpcOpenMemHandle_v2(pointer *, handle, unsigned);
int cuIpcCloseMemHandle(pointer);
int cuIpcGetEventHandle(handle *, event);
int cuIpcOpenEventHandle(event *, handle);
int cuModuleLoad(uintptr_t *, const char *);
int cuModuleLoadData(uintptr_t *, const void *);
int cuModuleUnload(uintptr_t);
int cuModuleGetFunction(uintptr_t *, uintptr_t, const char *);
int cuLaunchKernel(uintptr_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream, void **, void **);
#define gpuDeviceSynchronize cuCtxSynchronize
#define gpuMalloc cuMemAlloc_v2
#define gpuFree cuMemFree_v2
#define gpuHostMalloc cuMemHostAlloc
#define gpuHostFree cuMemFreeHost
#define gpuHostRegister cuMemHostRegister_v2
#define gpuHostUnregister cuMemHostUnregister
#define gpuMallocManaged cuMemAllocManaged
#define gpuMallocAsync cuMemAllocAsync
#define gpuFreeAsync cuMemFreeAsync
#define gpuMemGetInfo cuMemGetInfo_v2
#define gpuMemGetAddressRange cuMemGetAddressRange_v2
#define gpuMemcpy cuMemcpy
#define gpuMemcpyAsync cuMemcpyAsync
#define gpuMemset cuMemsetD8_v2
#define gpuMemsetAsync cuMemsetD8Async
#define gpuMemsetD32Async cuMemsetD32Async
#define gpuStreamCreate cuStreamCreate
#define gpuStreamDestroy cuStreamDestroy_v2
#define gpuStreamSynchronize cuStreamSynchronize
#define gpuStreamQuery cuStreamQuery
#define gpuStreamWaitEvent cuStreamWaitEvent
#define gpuStreamWaitValue32 cuStreamWaitValue32_v2
#define gpuStreamWriteValue32 cuStreamWriteValue32_v2
#define gpuLaunchHostFunc cuLaunchHostFunc
#define gpuEventCreate cuEventCreate
#define gpuEventDestroy cuEventDestroy_v2
#define gpuEventRecord cuEventRecord
#define gpuEventQuery cuEventQuery
#define gpuEventSynchronize cuEventSynchronize
#define gpuEventElapsedTime cuEventElapsedTime
#define gpuIpcGetMemHandle cuIpcGetMemHandle
#define gpuIpcOpenMemHandle cuIpcOpenMemHandle_v2
#define gpuIpcCloseMemHandle cuIpcCloseMemHandle
#define gpuIpcGetEventHandle cuIpcGetEventHandle
#define gpuIpcOpenEventHandle cuIpcOpenEventHandle
#define gpuModuleLoad cuModuleLoad
#define gpuModuleLoadData cuModuleLoadData
#define gpuModuleUnload cuModuleUnload
#define gpuModuleGetFunction cuModuleGetFunction
#define gpuLaunchKernel cuLaunchKernel
int cuPointerGetAttribute(void *, int, pointer);
struct attributes { int type, device, managed; };
static inline int gpuAttributes(struct attributes *attributes, pointer p) {
    int code = cuPointerGetAttribute(&attributes->type, 2, p);
    if (code != 0) return code;
    OK(cuPointerGetAttribute(&attributes->managed, 8, p));
    return cuPointerGetAttribute(&attributes->device, 9, p);
}
#define MANAGED DEVICE
#endif

#ifdef HIP
#define START() OK(hipInit(0))
int hipInit(unsigned);
int hipGetDeviceCount(int *);
int hipDeviceSynchronize(void);
int hipMalloc(pointer *, size_t);
int hipFree(pointer);
int hipHostMalloc(pointer *, size_t, unsigned);
int hipHostFree(pointer);
int hipHostRegister(void *, size_t, unsigned);
int hipHostUnregister(void *);
int hipMallocManaged(pointer *, size_t, unsigned);
int hipMallocAsync(pointer *, size_t, stream);
int hipFreeAsync(pointer, stream);
int hipMemGetInfo(size_t *, size_t *);
int hipMemGetAddressRange(pointer *, size_t *, pointer);
int hipMemcpy(pointer, pointer, size_t, int);
int hipMemcpyAsync(pointer, pointer, size_t, int, stream);
int hipMemset(pointer, int, size_t);
int hipMemsetAsync(pointer, int, size_t, stream);
int hipMemsetD32Async(pointer, int, size_t, stream);
int hipStreamCreateWithFlags(stream *, unsigned);
int hipStreamDestroy(stream);
int hipStreamSynchronize(stream);
int hipStreamQuery(stream);
int hipStreamWaitEvent(stream, event, unsigned);
int hipStreamWaitValue32(stream, pointer, uint32_t, unsigned, uint32_t);
int hipStreamWriteValue32(stream, pointer, uint32_t, unsigned);
int hipLaunchHostFunc(stream, void (*)(void *), void *);
int hipEventCreateWithFlags(event *, unsigned);
int hipEventDestroy(event);
int hipEventRecord(event, stream);
int hipEventQuery(event);
int hipEventSynchronize(event);
int hipEventElapsedTime(float *, event, event);
int hipIpcGetMemHandle(handle *, pointer);
int hipIpcOpenMemHandle(pointer *, handle, unsigned);
int hipIpcCloseMemHandle(pointer);
int hipIpcGetEventHandle(handle *, event);
int hipIpcOpenEventHandle(event *, handle);
int hipModuleLoad(uintptr_t *, const char *);
int hipModuleLoadData(uintptr_t *, const void *);
int hipModuleUnload(uintptr_t);
int hipModuleGetFunction(uintptr_t *, uintptr_t, const char *);
int hipModuleLaunchKernel(uintptr_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream, void **, void **);
int hipGetLastError(void);
const char *hipGetErrorName(int);
#define gpuDeviceSynchronize hipDeviceSynchronize
#define gpuMalloc hipMalloc
#define gpuFree hipFree
#define gpuHostMalloc hipHostMalloc
#define gpuHostFree hipHostFree
#define gpuHostRegister hipHostRegister
#define gpuHostUnregister hipHostUnregister
#define gpuMallocManaged hipMallocManaged
#define gpuMallocAsync hipMallocAsync
#define gpuFreeAsync hipFreeAsync
#define gpuMemGetInfo hipMemGetInfo
#define gpuMemGetAddressRange hipMemGetAddressRange
#define gpuMemcpy(to, from, bytes) hipMemcpy(to, from, bytes, 4)
#define gpuMemcpyAsync(to, from, bytes, stream) hipMemcpyAsync(to, from, bytes, 4, stream)
#define gpuMemset hipMemset
#define gpuMemsetAsync hipMemsetAsync
#define gpuMemsetD32Async hipMemsetD32Async
#define gpuStreamCreate hipStreamCreateWithFlags
#define gpuStreamDestroy hipStreamDestroy
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamQuery hipStreamQuery
#define gpuStreamWaitEvent hipStreamWaitEvent
#define gpuStreamWaitValue32(stream, address, value, flags) hipStreamWaitValue32(stream, address, value, flags, UINT32_MAX)
#define gpuStreamWriteValue32 hipStreamWriteValue32
#define gpuLaunchHostFunc hipLaunchHostFunc
#define gpuEventCreate hipEventCreateWithFlags
#define gpuEventDestroy hipEventDestroy
#define gpuEventRecord hipEventRecord
#define gpuEventQuery hipEventQuery
#define gpuEventSynchronize hipEventSynchronize
#define gpuEventElapsedTime hipEventElapsedTime
#define gpuIpcGetMemHandle hipIpcGetMemHandle
#define gpuIpcOpenMemHandle hipIpcOpenMemHandle
#define gpuIpcCloseMemHandle hipIpcCloseMemHandle
#define gpuIpcGetEventHandle hipIpcGetEventHandle
#define gpuIpcOpenEventHandle hipIpcOpenEventHandle
#define gpuModuleLoad hipModuleLoad
#define gpuModuleLoadData hipModuleLoadData
#define gpuModuleUnload hipModuleUnload
#define gpuModuleGetFunction hipModuleGetFunction
#define gpuLaunchKernel hipModuleLaunchKernel
struct hip_attributes { int type, device; pointer device_pointer, host_pointer; int managed; unsigned flags; };
int hipPointerGetAttributes(struct hip_attributes *, pointer);
struct attributes { int type, device, managed; };
static inline int gpuAttributes(struct attributes *attributes, pointer p) {
    struct hip_attributes found;
    int code = hipPointerGetAttributes(&found, p);
    if (code == 0) *attributes = (struct attributes){found.type, found.device, found.managed};
    return code;
}
#define MANAGED 3
#endif
