/* Shared memory inside a node: many communicators at once, communicators that go while slower ranks still read, blocking
 * collectives among nonblocking ones, threads on communicators of their own, and what all of that costs. */
#include "check.h"

#include <pthread.h>

enum { COMMUNICATORS = 1000, ELEMENTS = 70000, THREADS = 3, ROUNDS = 200 };

static void many_at_once(void)
{
    static MPI_Comm comms[COMMUNICATORS];
    int right = 1;
    double begun = MPI_Wtime();
    for (int i = 0; i < COMMUNICATORS; ++i) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        int one = i + me, sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
        right &= sum == ranks * i + ranks * (ranks - 1) / 2;
    }
    /* All still work, in another order. */
    for (int i = COMMUNICATORS - 1; i >= 0; --i) {
        int value = me == i % ranks ? i : -1;
        MPI_Bcast(&value, 1, MPI_INT, i % ranks, comms[i]);
        right &= value == i;
        MPI_Comm_free(&comms[i]);
    }
    check("1000 communicators at once", right);
    if (0 == me) {
        printf("1000 communicators, made, used twice and freed: %.0f us each\n",
               (MPI_Wtime() - begun) * 1e6 / COMMUNICATORS);
    }
}

/* The root leaves, frees and makes the next while the others have read nothing yet. */
static void gone_while_being_read(void)
{
    int right = 1;
    for (int i = 0; i < 300; ++i) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        int values[600];
        for (int round = 0; round < 20; ++round) {
            int n = 1 + (i * 20 + round) % 600;
            for (int k = 0; k < n; ++k) {
                values[k] = 0 == me ? i + round + k : -1;
            }
            MPI_Bcast(values, n, MPI_INT, 0, comm);
            for (int k = 0; k < n; ++k) {
                right &= values[k] == i + round + k;
            }
        }
        MPI_Comm_free(&comm);
    }
    check("communicators freed while others still read", right);
}

static void among_nonblocking(void)
{
    static double in[ELEMENTS], out[2][ELEMENTS], block[ELEMENTS];
    int right = 1;
    for (int i = 0; i < 40; ++i) {
        MPI_Request requests[2];
        int n = 1 + (i * 7919) % ELEMENTS;
        for (int k = 0; k < n; ++k) {
            in[k] = me + k % 13;
            block[k] = me == i % ranks ? k : -1;
        }
        MPI_Iallreduce(in, out[0], n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Bcast(block, n, MPI_DOUBLE, i % ranks, MPI_COMM_WORLD);
        MPI_Iallreduce(in, out[1], n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < n; ++k) {
            right &= block[k] == k && out[0][k] == ranks * (ranks - 1) / 2.0 + ranks * (k % 13);
            right &= out[1][k] == ranks - 1 + k % 13;
        }
    }
    check("blocking among nonblocking", right);
}

static MPI_Comm of_thread[THREADS];
static int thread_right[THREADS];

static void *thread(void *number)
{
    long t = (long) number;
    thread_right[t] = 1;
    for (int i = 0; i < ROUNDS; ++i) {
        int n = 1 + i * (int) (t + 3) * 11;
        long *in = malloc(sizeof(long) * n), *out = malloc(sizeof(long) * n);
        for (int k = 0; k < n; ++k) {
            in[k] = me + t * 1000 + k;
        }
        MPI_Allreduce(in, out, n, MPI_LONG, MPI_SUM, of_thread[t]);
        for (int k = 0; k < n; ++k) {
            thread_right[t] &= out[k] == ranks * (t * 1000 + k) + ranks * (ranks - 1) / 2;
        }
        free(in);
        free(out);
    }
    return NULL;
}

static void threads(void)
{
    int provided;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        printf("SKIPPED threads: this MPI library has no MPI_THREAD_MULTIPLE\n");
        return;
    }
    pthread_t running[THREADS];
    int right = 1;
    for (long t = 0; t < THREADS; ++t) {
        MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[t]);
    }
    for (long t = 0; t < THREADS; ++t) {
        pthread_create(&running[t], NULL, thread, (void *) t);
    }
    for (int t = 0; t < THREADS; ++t) {
        pthread_join(running[t], NULL);
        right &= thread_right[t];
        MPI_Comm_free(&of_thread[t]);
    }
    check("threads on communicators of their own", right);
}

/* More ranks than cores must take turns, not wait each other out. The best of many rounds: other programs want the cores too. */
static void no_collapse(void)
{
    enum { ROUNDS = 50, CALLS = 10 };
    double best = 1e9;
    for (int round = 0; round < ROUNDS; ++round) {
        double begun = MPI_Wtime(), slowest;
        for (int i = 0; i < CALLS; ++i) {
            double in = me, out;
            MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        double us = (MPI_Wtime() - begun) * 1e6 / CALLS;
        MPI_Allreduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        best = slowest < best ? slowest : best;
    }
    /* A rank that spins through its time slice costs milliseconds. */
    check("ranks take turns", best < 2000);
    if (0 == me) {
        printf("allreduce of 8 bytes on %d ranks: %.1f us\n", ranks, best);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    many_at_once();
    gone_while_being_read();
    among_nonblocking();
    threads();
    no_collapse();
    return end();
}
