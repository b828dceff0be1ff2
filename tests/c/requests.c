/* Nonblocking and persistent collectives: many at once, waited for in any order, restarted, freed early; threads. */
#include "check.h"

#include <pthread.h>

#define MANY 200

static void many_at_once(void)
{
    MPI_Request requests[MANY];
    int in[MANY], out[MANY], right = 1;
    for (int i = 0; i < MANY; ++i) {
        in[i] = me * i;
        MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    int flag = 0;
    MPI_Test(&requests[MANY - 1], &flag, MPI_STATUS_IGNORE);
    for (int i = MANY - 1; i >= 0; --i) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < MANY; ++i) {
        right &= out[i] == i * ranks * (ranks - 1) / 2;
    }
    check("200 iallreduce at once, waited for backwards", right);
}

static void all_kinds(void)
{
    MPI_Request requests[8];
    int *a = calloc(ranks * 3, sizeof(int)), *b = calloc(ranks * 3, sizeof(int)), right = 1;
    int sum = 0, prefix = 0, root = me == 0 ? 42 : 0, mine = me + 1, block[3] = {0, 0, 0};
    int *gathered = calloc(ranks, sizeof(int)), *ones = malloc(sizeof(int) * ranks * 3);
    for (int i = 0; i < ranks * 3; ++i) {
        a[i] = me * 1000 + i;
        ones[i] = 1;
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
    MPI_Ibcast(&root, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Ialltoall(a, 3, MPI_INT, b, 3, MPI_INT, MPI_COMM_WORLD, &requests[2]);
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[3]);
    MPI_Iscan(&mine, &prefix, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[4]);
    MPI_Igather(&mine, 1, MPI_INT, gathered, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD, &requests[5]);
    MPI_Ireduce_scatter_block(ones, block, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[6]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[7]);
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ranks * 3; ++i) {
        right &= b[i] == i / 3 * 1000 + me * 3 + i % 3;
    }
    for (int r = 0; me == ranks - 1 && r < ranks; ++r) {
        right &= gathered[r] == r + 1;
    }
    right &= 42 == root && sum == ranks * (ranks + 1) / 2 && prefix == (me + 1) * (me + 2) / 2 && block[2] == ranks;
    check("eight kinds under way together", right);
    free(a), free(b), free(gathered), free(ones);
}

static void persistent(void)
{
    MPI_Request requests[3];
    const int n = 5000;
    double *in = malloc(sizeof(double) * n), *out = malloc(sizeof(double) * n), token = 0;
    int right = 1;
    MPI_Allreduce_init(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Bcast_init(&token, 1, MPI_DOUBLE, ranks - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < n; ++i) {
            in[i] = me + round + i;
        }
        token = me == ranks - 1 ? round : -1;
        MPI_Startall(3, requests);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < n; i += 499) {
            right &= out[i] == ranks * (ranks - 1) / 2.0 + ranks * (double) (round + i);
        }
        right &= token == round;
    }
    for (int i = 0; i < 3; ++i) {
        MPI_Request_free(&requests[i]);
    }
    check("persistent requests restarted 100 times", right);
    free(in), free(out);
}

static void freed_early(void)
{
    MPI_Request request;
    MPI_Comm comm;
    int token = me == 0 ? 5 : 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Ibcast(&token, 1, MPI_INT, 0, comm, &request);
    MPI_Comm_free(&comm); /* lives on until the collective has ended */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("communicator freed under a collective", 5 == token);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    check("request freed under a collective", MPI_REQUEST_NULL == request);
}

static void mixed_order(void)
{
    MPI_Request request;
    int one = 1, sum = 0;
    if (0 == me) {
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("a barrier beside a nonblocking collective, in different orders", sum == ranks);
}

static MPI_Comm thread_comms[4];

static void *work(void *argument)
{
    int number = (int) (size_t) argument;
    long wrong = 0;
    for (int i = 0; i < 300; ++i) {
        int in = me + i * number, sum = -1, wanted = ranks * (ranks - 1) / 2 + ranks * i * number;
        if (i % 3) {
            MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, thread_comms[number]);
        } else {
            MPI_Request request;
            MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, thread_comms[number], &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        wrong += sum != wanted;
    }
    return (void *) wrong;
}

static void threads(void)
{
    pthread_t handles[4];
    int level, right = 1;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
        if (0 == me) {
            printf("SKIPPED threads: this MPI gives no MPI_THREAD_MULTIPLE\n");
        }
        return;
    }
    for (int t = 0; t < 4; ++t) {
        MPI_Comm_dup(MPI_COMM_WORLD, &thread_comms[t]);
    }
    for (int t = 0; t < 4; ++t) {
        pthread_create(&handles[t], NULL, work, (void *) (size_t) t);
    }
    for (int t = 0; t < 4; ++t) {
        void *wrong;
        pthread_join(handles[t], &wrong);
        right &= NULL == wrong;
    }
    check("four threads, each on its own communicator", right);
    for (int t = 0; t < 4; ++t) {
        MPI_Comm_free(&thread_comms[t]);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    many_at_once();
    all_kinds();
    persistent();
    freed_early();
    mixed_order();
    threads();
    return end();
}
