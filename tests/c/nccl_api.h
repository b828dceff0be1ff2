/* NCCL's interface as far as the tests use it. Source: NCCL's public documentation of 2.32. */
#ifndef HETCCL_NCCL_API_H
#define HETCCL_NCCL_API_H

#include <limits.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef void *stream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet, cta_policy, shrink_share, nvls_ctas;
} ncclConfig_t;

/* A configuration in which nothing but the size, the header and `.blocking` is said. */
#define CONFIG(SIZE, VERSION, BLOCKING)                                                                                          \
    {.size = SIZE, .magic = 0xcafebeef, .version = VERSION, .blocking = BLOCKING, .cga = INT_MIN, .min_ctas = INT_MIN,           \
     .max_ctas = INT_MIN, .split_share = INT_MIN, .traffic_class = INT_MIN, .collnet = INT_MIN, .cta_policy = INT_MIN,           \
     .shrink_share = INT_MIN, .nvls_ctas = INT_MIN}

typedef struct {
    size_t size;
    unsigned magic, version;
    void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga;
    const char *algorithms;
    int force, policy;
    unsigned long long tag;
    void *launched;
} ncclCollConfig_t;
typedef struct {
    size_t size;
    unsigned magic, version;
    int rank, ranks, device, nvml_device;
    _Bool device_api, multimem;
    int gin, lsa_teams;
    _Bool host_rma;
    int railed_gin;
    unsigned long long hash, later[16];
} ncclCommProperties_t;

typedef struct {
    int count, peer, signal, context;
} ncclWaitSignalDesc_t;

enum { ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress };
enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };
enum { ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes };

/* What NCCL before 2.30 lacks some of: null where the library has none. */
#define LATER __attribute__((weak))

int ncclGetVersion(int *);
int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
int ncclCommInitAll(ncclComm_t *, int, const int *);
int ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
int ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int) LATER;
int ncclCommFinalize(ncclComm_t);
int ncclCommDestroy(ncclComm_t);
int ncclCommAbort(ncclComm_t);
int ncclCommGetAsyncError(ncclComm_t, int *);
int ncclCommCount(ncclComm_t, int *);
int ncclCommCuDevice(ncclComm_t, int *);
int ncclCommUserRank(ncclComm_t, int *);
int ncclCommRegister(ncclComm_t, void *, size_t, void **);
int ncclCommDeregister(ncclComm_t, void *);
int ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
int ncclCommResume(ncclComm_t) LATER;
typedef struct {
    int ranks, rank, stride;
} ncclTeam_t;
ncclTeam_t ncclTeamWorld(ncclComm_t);
ncclTeam_t ncclTeamLsa(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, ncclTeam_t, int);
int ncclCommWindowRegister(ncclComm_t, void *, size_t, void **, int) LATER;
int ncclCommWindowDeregister(ncclComm_t, void *) LATER;
int ncclWinGetUserPtr(ncclComm_t, void *, void **) LATER;
int ncclPutSignal(const void *, size_t, int, int, void *, size_t, int, int, unsigned, ncclComm_t, stream_t) LATER;
int ncclWaitSignal(int, ncclWaitSignalDesc_t *, ncclComm_t, stream_t) LATER;
int ncclMemAlloc(void **, size_t);
int ncclMemFree(void *);
const char *ncclGetErrorString(int);
const char *ncclGetLastError(ncclComm_t);
int ncclRedOpCreatePreMulSum(int *, void *, int, int, ncclComm_t);
int ncclRedOpDestroy(int, ncclComm_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int pncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclAllReduceConfig(const void *, void *, size_t, int, int, ncclComm_t, stream_t, const ncclCollConfig_t *) LATER;
int ncclAllGatherConfig(const void *, void *, size_t, int, ncclComm_t, stream_t, const ncclCollConfig_t *) LATER;
int ncclCommMemStats(ncclComm_t, int, unsigned long long *) LATER;
int ncclCommQueryProperties(ncclComm_t, ncclCommProperties_t *) LATER;
int ncclCommSuspend(ncclComm_t, int) LATER;
int ncclCommRevoke(ncclComm_t, int) LATER;
int ncclCommGrow(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *) LATER;
int ncclCommGetUniqueId(ncclComm_t, ncclUniqueId *) LATER;
int ncclSignal(int, int, int, unsigned, ncclComm_t, stream_t) LATER;
int ncclParamBind(void **, const char *) LATER;
int ncclReduce(const void *, void *, size_t, int, int, int, ncclComm_t, stream_t);
int ncclReduceScatter(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclBcast(void *, size_t, int, int, ncclComm_t, stream_t);
int ncclAllGather(const void *, void *, size_t, int, ncclComm_t, stream_t);
int ncclAlltoAll(const void *, void *, size_t, int, ncclComm_t, stream_t);
int ncclGather(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclScatter(const void *, void *, size_t, int, int, ncclComm_t, stream_t);
int ncclSend(const void *, size_t, int, int, ncclComm_t, stream_t);
int ncclRecv(void *, size_t, int, int, ncclComm_t, stream_t);

#endif
