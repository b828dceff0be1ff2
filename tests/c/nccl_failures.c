/* A rank that ends or stops in the middle of an allreduce: what the others see, how soon, and how they go on without it.
 *
 *     nccl_failures cuda|rocm RANK SIZE FILE VICTIM END WAY
 *
 * END is what the victim does: kill (SIGKILL, in the middle of its own part), late (SIGKILL, without having called), stop
 * (SIGSTOP). WAY is how the others go on: shrink, rebuild (a communicator with an id of its own), watchdog (as PyTorch does:
 * one thread waits for the stream, another looks at the asynchronous error, aborts, and the process ends), or withoutN (rank N ends
 * before the shrink that it is to be in). FILE is where ids and times are left.
 *
 * Prints a line "ok WHAT" for each check that held. */
#include "nccl_device.h"

#include <pthread.h>
#include <signal.h>

#define COUNT 100000

static int rank, size, victim;
static const char *file;
static ncclComm_t comm;
static stream_t stream;
static float *send, *recv;
static float host[COUNT];

static void ok(const char *what) { printf("ok %d %s\n", rank, what); }

static void check(const char *what, int holds)
{
    if (!holds) {
        fprintf(stderr, "rank %d: not so: %s (last error: %s)\n", rank, what, ncclGetLastError(NULL));
        exit(3);
    }
    ok(what);
}

static const char *beside(const char *what)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s.%s", file, what);
    return name;
}

static void fill(int value)
{
    for (int i = 0; i < COUNT; ++i) host[i] = (float) (value + i % 5);
    put(send, host, sizeof host);
}

static int has_sum(int of, int sum)
{
    get(host, recv, sizeof host);
    int right = 1;
    for (int i = 0; i < COUNT; ++i) right &= host[i] == (float) (sum + of * (i % 5));
    return right;
}

static void is_sum(const char *what, int of, int sum) { check(what, has_sum(of, sum)); }

struct end {
    double at;
    int pid;
};

static void end_oneself(const char *how)
{
    int begins = how[0] == 'k';
    if (begins) NCCL(ncclAllReduce(send, recv, COUNT, ncclFloat32, ncclSum, comm, stream));
    usleep(begins ? 0 : 200000);
    struct end end = {seconds(), getpid()};
    leave_file(beside("end"), &end, sizeof end);
    raise(how[0] == 's' ? SIGSTOP : SIGKILL);
}

static int error_of(ncclComm_t of)
{
    int error = -1;
    NCCL(ncclCommGetAsyncError(of, &error));
    return error;
}

/* `over`: none was under way: the allreduce had all of the victim's part before it ended, or was refused. */
static void is_named(const char *text, const struct end *end, const char *word, int over)
{
    char whose[64], name[256], pid[32];
    gethostname(name, sizeof name);
    snprintf(whose, sizeof whose, "rank %d", victim);
    snprintf(pid, sizeof pid, "process %d", end->pid);
    printf("text %d %s\n", rank, text);
    check("the rank is named", NULL != strstr(text, whose));
    check("the process is named", NULL != strstr(text, pid));
    check("the host is named", NULL != strstr(text, name));
    check("the operation is named", over || NULL != strstr(text, "allreduce of 100000 x float32"));
    check("the operation's number is named", over || NULL != strstr(text, "number 4"));
    check("what happened is named", NULL != strstr(text, word));
}

/* The rank's number without the victim. */
static int place(void) { return rank - (rank > victim); }

static void go_on(ncclComm_t new, const char *what)
{
    int count = 0;
    NCCL(ncclCommCount(new, &count));
    check("one rank less", size - 1 == count);
    fill(place() + 1);
    NCCL(ncclAllReduce(send, recv, COUNT, ncclFloat32, ncclSum, new, stream));
    must("synchronize", stream_synchronize(stream));
    is_sum(what, size - 1, size * (size - 1) / 2);
    NCCL(ncclCommDestroy(new));
}

static double aborted_at;

static void *watch(void *unused)
{
    (void) unused;
    while (ncclSuccess == error_of(comm)) usleep(100000);
    double begun = seconds();
    NCCL(ncclCommAbort(comm));
    aborted_at = seconds();
    printf("time %d %.3f s for an abort from another thread\n", rank, aborted_at - begun);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 8) return 2;
    set_up(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    rank = atoi(argv[2]), size = atoi(argv[3]), file = argv[4], victim = atoi(argv[5]);
    const char *how = argv[6], *way = argv[7];
    ncclUniqueId id = share_id(beside("id"), rank);
    NCCL(ncclCommInitRank(&comm, size, id, rank));
    must("stream", stream_create(&stream, 1));
    send = device_alloc(sizeof host), recv = device_alloc(sizeof host);
    for (int i = 0; i < 3; ++i) {
        fill(rank + 1);
        NCCL(ncclAllReduce(send, recv, COUNT, ncclFloat32, ncclSum, comm, stream));
        must("synchronize", stream_synchronize(stream));
        is_sum("an allreduce of all", size, size * (size + 1) / 2);
    }
    fill(rank + 1);
    float nothing = -1;
    put(recv, &nothing, sizeof nothing);
    if (rank == victim) end_oneself(how);
    int queued = ncclAllReduce(send, recv, COUNT, ncclFloat32, ncclSum, comm, stream);
    /* The victim's end may be noticed before the call. */
    int refused = how[0] == 'k' && ncclRemoteError == queued;
    if (!refused) NCCL(queued);
    pthread_t watchdog;
    int watched = 0 == strcmp(way, "watchdog");
    if (watched) pthread_create(&watchdog, NULL, watch, NULL);
    must("synchronize", stream_synchronize(stream));
    double free_at = seconds();
    struct end end;
    take_file(beside("end"), &end, sizeof end);
    printf("time %d %.3f s from %s to a stream that goes on\n", rank, free_at - end.at, how);
    if (watched) {
        pthread_join(watchdog, NULL);
        check("the watchdog has aborted in a second", aborted_at - free_at < 1.2);
        int over = refused || (how[0] == 'k' && has_sum(size, size * (size + 1) / 2));
        check("the text stays", over || NULL != strstr(ncclGetLastError(NULL), "allreduce"));
        return 0;
    }
    while (ncclSuccess == error_of(comm)) usleep(1000);
    printf("time %d %.3f s from %s to an asynchronous error\n", rank, seconds() - end.at, how);
    check("the asynchronous error is ncclRemoteError", ncclRemoteError == error_of(comm));
    is_named(ncclGetLastError(comm), &end, how[0] == 's' ? "has said nothing for" : "connection",
             refused || (how[0] == 'k' && has_sum(size, size * (size + 1) / 2)));
    check("later calls fail", ncclRemoteError == ncclAllReduce(send, recv, 1, ncclFloat32, ncclSum, comm, stream));
    double begun = seconds();
    if (0 == strcmp(way, "shrink")) {
        ncclComm_t new = NULL;
        NCCL(ncclCommShrink(comm, &victim, 1, &new, NULL, 1));
        printf("time %d %.3f s for a shrink\n", rank, seconds() - begun);
        go_on(new, "an allreduce after a shrink");
        begun = seconds();
        NCCL(ncclCommAbort(comm));
    } else if (0 == strncmp(way, "without", 7)) {
        /* Another one ends before the shrink that it is to be in. */
        int other = atoi(way + 7);
        if (rank == other) _exit(0);
        ncclComm_t new = NULL;
        check("a shrink fails", ncclSuccess != ncclCommShrink(comm, &victim, 1, &new, NULL, 1));
        printf("time %d %.3f s for a shrink that fails\n", rank, seconds() - begun);
        printf("text %d %s\n", rank, ncclGetLastError(NULL));
        char name[32];
        snprintf(name, sizeof name, "rank %d", place() ? 0 : other - 1);
        check("the shrink takes seconds", seconds() - begun < 10);
        check("its rank is named", NULL != strstr(ncclGetLastError(NULL), name));
        begun = seconds();
        NCCL(ncclCommAbort(comm));
    } else {
        NCCL(ncclCommAbort(comm));
    }
    double took = seconds() - begun;
    printf("time %d %.3f s for an abort\n", rank, took);
    check("an abort takes less than a second", took < 1);
    if (0 == strcmp(way, "rebuild")) {
        id = share_id(beside("id2"), place());
        NCCL(ncclCommInitRank(&comm, size - 1, id, place()));
        go_on(comm, "an allreduce of a new communicator");
    }
    return 0;
}
