/* Result codes for bad input, one line a call: "CODE CALL", or "died CALL" where the library does not survive it. It links to
 * libnccl.so.2, so that hetccl's and NVIDIA's can be compared. Each call has a process of its own. */
#include "nccl_api.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL(call)                                                                                                     \
    do {                                                                                                               \
        fflush(stdout);                                                                                                \
        pid_t child = fork();                                                                                          \
        int status = 0;                                                                                                \
        if (0 == child) {                                                                                              \
            alarm(30);                                                                                                 \
            printf("%d %s\n", call, #call);                                                                            \
            fflush(stdout);                                                                                            \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        waitpid(child, &status, 0);                                                                                    \
        if (0 != status) printf("died %s\n", #call);                                                                   \
    } while (0)

int main(void)
{
    ncclComm_t none = NULL;
    int number = 0;
    char buffer[64];
    void *pointer = NULL;
    unsigned long long value = 0;
    ncclCommProperties_t properties = {.size = sizeof properties, .magic = 0xcafebeef, .version = 23203};
    ncclUniqueId id;
    ncclConfig_t bad = {.size = sizeof bad, .magic = 1, .version = 22809, .blocking = 1};
    memset(&id, 0, sizeof id);
    CALL(ncclGetVersion(NULL));
    CALL(ncclGetUniqueId(NULL));
    CALL(ncclGroupEnd());
    CALL(ncclCommInitRank(NULL, 1, id, 0));
    CALL(ncclCommInitRank(&none, 0, id, 0));
    CALL(ncclCommInitRank(&none, 2, id, 2));
    CALL(ncclCommInitRank(&none, 2, id, -1));
    CALL(ncclCommInitRankConfig(&none, 1, id, 0, &bad));
    CALL(ncclCommInitAll(NULL, 1, NULL));
    CALL(ncclCommInitAll(&none, -1, NULL));
    CALL(ncclCommInitRankScalable(&none, 1, 0, 0, &id, NULL));
    CALL(ncclCommDestroy(NULL));
    CALL(ncclCommAbort(NULL));
    CALL(ncclCommFinalize(NULL));
    CALL(ncclCommRevoke(NULL, 0));
    CALL(ncclCommCount(NULL, &number));
    CALL(ncclCommUserRank(NULL, &number));
    CALL(ncclCommCuDevice(NULL, &number));
    CALL(ncclCommGetAsyncError(NULL, &number));
    CALL(ncclCommSplit(NULL, 0, 0, &none, NULL));
    CALL(ncclCommShrink(NULL, &number, 1, &none, NULL, 0));
    CALL(ncclCommGrow(NULL, 2, NULL, 1, &none, NULL));
    CALL(ncclCommGetUniqueId(NULL, &id));
    CALL(ncclCommMemStats(NULL, 0, &value));
    CALL(ncclCommSuspend(NULL, 1));
    CALL(ncclCommResume(NULL));
    CALL(ncclCommQueryProperties(NULL, &properties));
    CALL(ncclCommRegister(NULL, buffer, 8, &pointer));
    CALL(ncclCommDeregister(NULL, pointer));
    CALL(ncclCommWindowRegister(NULL, buffer, 8, &pointer, 0));
    CALL(ncclCommWindowDeregister(NULL, pointer));
    CALL(ncclWinGetUserPtr(NULL, NULL, &pointer));
    CALL(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, NULL, NULL));
    CALL(ncclAllReduceConfig(buffer, buffer, 1, ncclFloat32, ncclSum, NULL, NULL, NULL));
    CALL(ncclBroadcast(buffer, buffer, 1, ncclFloat32, 0, NULL, NULL));
    CALL(ncclAllGather(buffer, buffer, 0, ncclFloat32, NULL, NULL));
    CALL(ncclSend(buffer, 1, ncclFloat32, 0, NULL, NULL));
    CALL(ncclRecv(buffer, 1, ncclFloat32, 0, NULL, NULL));
    CALL(ncclPutSignal(buffer, 1, ncclFloat32, 0, NULL, 0, 0, 0, 0, NULL, NULL));
    CALL(ncclSignal(0, 0, 0, 0, NULL, NULL));
    CALL(ncclRedOpCreatePreMulSum(&number, buffer, ncclFloat32, 1, NULL));
    CALL(ncclRedOpDestroy(ncclSum, NULL));
    CALL(ncclRedOpDestroy(5, NULL));
    return 0;
}
