/* What can be done with communicators beside collectives: windows, puts and signals; grown, revoked, suspended, several roots;
 * and a rank that fails by itself.
 *
 *     nccl_comms cuda|rocm rank RANK SIZE FILE COUNT     one rank of several processes
 *
 * Prints a line "ok WHAT" for each check that held. */
#include "nccl_device.h"

static int rank, size;
static size_t count;
static const char *file;
static ncclComm_t comm;
static stream_t stream;
static float *from, *into, *host;

static void check(const char *what, int holds)
{
    if (!holds) {
        fprintf(stderr, "rank %d of %d: not so: %s (last error: %s)\n", rank, size, what, ncclGetLastError(NULL));
        exit(3);
    }
    printf("ok %d %s\n", rank, what);
}

#define REFUSED(code, call) (nccl(#call, call, code), check(#call, 0 != ncclGetLastError(NULL)[0]))

static const char *beside(const char *what)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s.%s", file, what);
    return name;
}

static void synchronize(ncclComm_t of)
{
    int error = -1;
    must("synchronize", stream_synchronize(stream));
    NCCL(ncclCommGetAsyncError(of, &error));
    nccl("asynchronous error", error, ncclSuccess);
}

static float value(int of, size_t i) { return (float) (of * 1000 + (int) (i % 97)); }

static void fill(size_t len)
{
    for (size_t i = 0; i < len; ++i) host[i] = value(rank, i);
    put(from, host, len * sizeof *host);
    memset(host, 0, len * sizeof *host);
    put(into, host, len * sizeof *host);
}

/* An allreduce that says whether a communicator works. */
static void works(const char *what, ncclComm_t of, int ranks)
{
    int counted = -1, sum = 0, own = -1;
    NCCL(ncclCommCount(of, &counted));
    NCCL(ncclCommUserRank(of, &own));
    check(what, ranks == counted);
    fill(1);
    host[0] = (float) (own + 1);
    put(from, host, sizeof *host);
    NCCL(ncclAllReduce(from, into, 1, ncclFloat32, ncclSum, of, stream));
    synchronize(of);
    get(host, into, sizeof *host);
    for (int i = 0; i < ranks; ++i) sum += i + 1;
    check(what, (float) sum == host[0]);
}

static void teams(void)
{
    ncclTeam_t all = ncclTeamWorld(comm), near = ncclTeamLsa(comm);
    check("the team of all", all.ranks == size && all.rank == rank && all.stride == 1);
    check("the team of oneself", near.ranks == 1 && near.rank == 0);
    check("ranks of teams", size - 1 == ncclTeamRankToWorld(comm, all, size - 1) && rank == ncclTeamRankToWorld(comm, near, 0));
    check("no rank of a team", -1 == ncclTeamRankToWorld(comm, all, size) && -1 == ncclTeamRankToWorld(NULL, all, 0));
}

static void windows(void)
{
    void *window = NULL, *other = NULL, *pointer = NULL;
    size_t bytes = count * (size_t) size * sizeof *from;
    NCCL(ncclCommWindowRegister(comm, into, bytes, &window, 1));
    NCCL(ncclCommWindowRegister(comm, from, bytes, &other, 0));
    check("two windows", NULL != window && NULL != other && window != other);
    NCCL(ncclWinGetUserPtr(comm, window, &pointer));
    check("the window's memory", pointer == into);
    /* An all-to-all of puts, to oneself as well. */
    ncclWaitSignalDesc_t waits[16];
    for (int round = 0; round < 2; ++round) {
        fill(count * (size_t) size);
        works("before puts", comm, size);
        fill(count * (size_t) size);
        /* Nobody puts before all have filled. */
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < size; ++peer) NCCL(ncclSignal(peer, 7, 1, 0, comm, stream));
        NCCL(ncclGroupEnd());
        for (int peer = 0; peer < size; ++peer) waits[peer] = (ncclWaitSignalDesc_t){1, peer, 7, 1};
        NCCL(ncclWaitSignal(size, waits, comm, stream));
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < size; ++peer) {
            NCCL(ncclPutSignal(from + peer * count, count, ncclFloat32, peer, window, rank * count * sizeof *from, 0, 0, 0, comm, stream));
        }
        NCCL(ncclGroupEnd());
        for (int peer = 0; peer < size; ++peer) waits[peer] = (ncclWaitSignalDesc_t){1, peer, 0, 0};
        NCCL(ncclWaitSignal(size, waits, comm, stream));
        synchronize(comm);
        get(host, into, bytes);
        int right = 1;
        for (size_t i = 0; i < count * (size_t) size; ++i) {
            right &= host[i] == value((int) (i / count), (size_t) rank * count + i % count);
        }
        check("an all-to-all of puts", right);
    }
    /* Signals are counted: three of the next rank, waited for as two and one. */
    for (int i = 0; i < 3; ++i) NCCL(ncclSignal((rank + 1) % size, 3, 0, 0, comm, stream));
    ncclWaitSignalDesc_t two = {2, (rank + size - 1) % size, 3, 0}, one = {1, (rank + size - 1) % size, 3, 0};
    NCCL(ncclWaitSignal(1, &two, comm, stream));
    NCCL(ncclWaitSignal(1, &one, comm, stream));
    synchronize(comm);
    check("signals are counted", 1);
    /* A rank that calls nothing takes puts all the same. */
    works("before a put", comm, size);
    int last = size - 1;
    if (rank == 0 && size > 1) {
        NCCL(ncclPutSignal(from, count, ncclFloat32, last, other, 0, 5, 0, 0, comm, stream));
        synchronize(comm);
    }
    if (rank == last && size > 1) {
        usleep(100000);
        ncclWaitSignalDesc_t late = {1, 0, 5, 0};
        NCCL(ncclWaitSignal(1, &late, comm, stream));
        synchronize(comm);
    }
    works("after a put", comm, size);
    NCCL(ncclCommWindowDeregister(comm, window));
    NCCL(ncclCommWindowDeregister(comm, other));
    REFUSED(ncclInvalidArgument, ncclCommWindowDeregister(comm, window));
    REFUSED(ncclInvalidArgument, ncclPutSignal(from, 1, ncclFloat32, 0, window, 0, 0, 0, 0, comm, stream));
}

static ncclComm_t duplicate(void)
{
    ncclComm_t new = NULL;
    NCCL(ncclCommSplit(comm, 0, rank, &new, NULL));
    return new;
}

/* A put that does not fit is an error on its target, of which the others hear. */
static void strays(void)
{
    ncclComm_t new = duplicate();
    void *window = NULL;
    int error = ncclSuccess;
    NCCL(ncclCommWindowRegister(new, into, 64, &window, 1));
    works("before a stray put", new, size);
    works("all have come to it", comm, size);
    if (rank == 0) NCCL(ncclPutSignal(from, 32, ncclFloat32, size - 1, window, 0, 0, 0, 0, new, stream));
    for (int i = 0; i < 10000 && ncclSuccess == error; ++i) {
        NCCL(ncclCommGetAsyncError(new, &error));
        usleep(1000);
    }
    nccl("the error of a stray put", error, rank == size - 1 ? ncclInvalidUsage : ncclRemoteError);
    check("a stray put is named", NULL != strstr(ncclGetLastError(new), "rank 0 puts 128 bytes at offset 0 of window 0, which has 64 bytes here"));
    NCCL(ncclCommAbort(new));
    must("synchronize", stream_synchronize(stream));
}

/* Waits for an asynchronous error. */
static int error_of(ncclComm_t of)
{
    int error = ncclSuccess;
    for (int i = 0; i < 20000 && ncclSuccess == error; ++i) {
        NCCL(ncclCommGetAsyncError(of, &error));
        usleep(1000);
    }
    must("synchronize", stream_synchronize(stream));
    printf("error %d is %d: %s\n", rank, error, ncclGetLastError(of));
    return error;
}

/* An allreduce that some rank fails in: it is queued, or refused where that rank was quicker. */
static void failing(float *send, float *recv, size_t len, ncclComm_t of)
{
    int code = ncclAllReduce(send, recv, len, ncclFloat32, ncclSum, of, stream);
    check("a call that fails now or later", ncclSuccess == code || ncclRemoteError == code);
}

/* One rank's count is another: nobody waits for ever. */
static void mismatches(void)
{
    if (size < 2) return;
    ncclComm_t new = duplicate();
    works("before a mismatch", new, size);
    works("all have come to it", comm, size);
    failing(from, into, 0 == rank ? 200 : 100, new);
    int error = error_of(new);
    check("a mismatch is an error", ncclInvalidUsage == error || ncclRemoteError == error);
    check("what differs is named", NULL != strstr(ncclGetLastError(new), "bytes"));
    NCCL(ncclCommAbort(new));
}

/* One rank's buffer is freed: it says so, and the others hear of it. */
static void frees(void)
{
    ncclComm_t new = duplicate();
    float *gone = device_alloc(4096);
    NCCL(ncclAllReduce(gone, gone, 1024, ncclFloat32, ncclSum, new, stream));
    synchronize(new);
    works("all have come to it", comm, size);
    device_free(gone);
    failing(0 == rank ? gone : from, 0 == rank ? gone : into, 1024, new);
    int error = error_of(new);
    nccl("the error of a freed buffer", error, 0 == rank ? ncclUnhandledCudaError : ncclRemoteError);
    if (0 != rank) check("the rank that failed is named", NULL != strstr(ncclGetLastError(new), "rank 0 (process"));
    NCCL(ncclCommAbort(new));
}

/* Configurations of other versions. */
static void versions(void)
{
    struct {
        ncclConfig_t known;
        int later[128];
    } newer = {.known = CONFIG(sizeof newer, 99999, 1)};
    for (int i = 0; i < 128; ++i) newer.later[i] = INT_MIN;
    struct {
        size_t size;
        unsigned magic, version;
        int blocking;
    } older = {24, 0xcafebeef, 21403, 1};
    ncclConfig_t *configs[] = {&newer.known, (ncclConfig_t *) &older};
    for (int i = 0; i < 2; ++i) {
        ncclComm_t new = NULL;
        ncclUniqueId id;
        NCCL(ncclGetUniqueId(&id));
        NCCL(ncclCommInitRankConfig(&new, 1, id, 0, configs[i]));
        works(i ? "an older configuration" : "a newer configuration", new, 1);
        NCCL(ncclCommDestroy(new));
        REFUSED(ncclInvalidArgument, ncclCommCount(new, &(int) {0}));
    }
    ncclComm_t new = NULL;
    ncclUniqueId id;
    older.size = 8;
    NCCL(ncclGetUniqueId(&id));
    REFUSED(ncclInvalidArgument, ncclCommInitRankConfig(&new, 1, id, 0, (ncclConfig_t *) &older));
    older.size = 24, older.blocking = 7;
    REFUSED(ncclInvalidArgument, ncclCommInitRankConfig(&new, 1, id, 0, (ncclConfig_t *) &older));
}

/* The making of a communicator whose other rank does not come is given up; that rank hears of it when it comes. */
static void abandons(void)
{
    ncclComm_t new = NULL, late = NULL;
    ncclUniqueId id;
    ncclConfig_t config = CONFIG(sizeof config, 22809, 0);
    int state = -1;
    NCCL(ncclGetUniqueId(&id));
    nccl("a nonblocking call", ncclCommInitRankConfig(&new, 2, id, 0, &config), ncclInProgress);
    usleep(50000);
    NCCL(ncclCommGetAsyncError(new, &state));
    check("it is being made", ncclInProgress == state);
    double begun = seconds();
    NCCL(ncclCommAbort(new));
    check("giving up takes less than a second", seconds() - begun < 1);
    usleep(200000);
    nccl("a rank that comes too late", ncclCommInitRank(&late, 2, id, 1), ncclRemoteError);
    check("it hears why", NULL != strstr(ncclGetLastError(NULL), "rank 0"));
}

static void revokes(void)
{
    ncclComm_t new = duplicate(), again = NULL;
    int error = -1;
    works("all have come to it", comm, size);
    if (rank == 0 && size > 1) NCCL(ncclAllReduce(from, into, 1, ncclFloat32, ncclSum, new, stream));
    double begun = seconds();
    NCCL(ncclCommRevoke(new, 0));
    check("a revocation takes less than a second", seconds() - begun < 1);
    must("synchronize", stream_synchronize(stream));
    NCCL(ncclCommGetAsyncError(new, &error));
    check("a revocation is no error", ncclSuccess == error);
    REFUSED(ncclInvalidUsage, ncclAllReduce(from, into, 1, ncclFloat32, ncclSum, new, stream));
    REFUSED(ncclInvalidUsage, ncclCommFinalize(new));
    NCCL(ncclCommSplit(new, 0, -rank, &again, NULL));
    works("split off a revoked one", again, size);
    NCCL(ncclCommDestroy(again));
    NCCL(ncclCommDestroy(new));
}

static void suspends(void)
{
    unsigned long long statistic = 9;
    works("before a suspension", comm, size);
    NCCL(ncclCommSuspend(comm, 1));
    NCCL(ncclCommMemStats(comm, 1, &statistic));
    check("it is suspended", 1 == statistic);
    NCCL(ncclCommMemStats(comm, 0, &statistic));
    check("it has no device memory", 0 == statistic);
    REFUSED(ncclInvalidUsage, ncclAllReduce(from, into, 1, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclCommResume(comm));
    REFUSED(ncclInvalidUsage, ncclCommResume(comm));
    works("after a suspension", comm, size);
}

/* The last rank is left out, and comes again as a new one. */
static void grows(void)
{
    int last = size - 1;
    ncclComm_t small = NULL, new = NULL;
    ncclUniqueId id;
    if (size < 2) return;
    if (rank == last) {
        take_file(beside("grow"), &id, sizeof id);
        NCCL(ncclCommGrow(NULL, size, &id, rank, &new, NULL));
    } else {
        NCCL(ncclCommShrink(comm, &last, 1, &small, NULL, 0));
        works("without the last", small, size - 1);
        if (rank == 0) {
            NCCL(ncclCommGetUniqueId(small, &id));
            leave_file(beside("grow"), &id, sizeof id);
        }
        NCCL(ncclCommGrow(small, size, 0 == rank ? &id : NULL, -1, &new, NULL));
    }
    works("grown", new, size);
    int own = -1;
    NCCL(ncclCommUserRank(new, &own));
    check("ranks keep their numbers", own == rank);
    if (NULL != small) {
        works("the smaller one works on", small, size - 1);
        NCCL(ncclCommDestroy(small));
    }
    NCCL(ncclCommDestroy(new));
}

/* Ranks are split among two roots. */
static void roots(void)
{
    ncclUniqueId ids[2];
    ncclComm_t new = NULL;
    int len = size < 2 ? 1 : 2;
    if (rank == 0) {
        for (int i = 0; i < 2; ++i) NCCL(ncclGetUniqueId(&ids[i]));
        leave_file(beside("roots"), ids, sizeof ids);
    } else {
        take_file(beside("roots"), ids, sizeof ids);
    }
    REFUSED(ncclInvalidArgument, ncclCommInitRankScalable(&new, size, rank, 0, ids, NULL));
    NCCL(ncclCommInitRankScalable(&new, size, rank, len, ids, NULL));
    works("two roots", new, size);
    NCCL(ncclCommDestroy(new));
}

int main(int argc, char **argv)
{
    if (argc != 7) return 2;
    set_up(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    rank = atoi(argv[3]), size = atoi(argv[4]), file = argv[5], count = (size_t) atol(argv[6]);
    size_t bytes = (count * (size_t) size + 1024) * sizeof *host;
    host = malloc(bytes);
    ncclUniqueId id = share_id(beside("id"), rank);
    NCCL(ncclCommInitRank(&comm, size, id, rank));
    must("stream", stream_create(&stream, 1));
    from = device_alloc(bytes), into = device_alloc(bytes);
    works("all", comm, size);
    teams();
    windows();
    strays();
    mismatches();
    frees();
    versions();
    abandons();
    revokes();
    suspends();
    grows();
    roots();
    works("all, at the end", comm, size);
    NCCL(ncclCommDestroy(comm));
    device_free(from);
    device_free(into);
    return 0;
}
