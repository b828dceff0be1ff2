/* What MPI 4 added, as Open MPI 5 has it: sessions without MPI_Init (twice), communicators made from groups, info hints, and
 * agreements (an extension) where no process fails. `once`: one session only. `with-world` starts MPI_Init as well. */
#include "check.h"

#include <mpi-ext.h>

static MPI_Comm from_session(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, set, &group);
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
    return comm;
}

static void collectives(MPI_Comm comm, const char *name)
{
    enum { N = 3000 };
    static int in[N], out[N];
    int size, rank, right = 1;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i < N; ++i) {
        in[i] = rank + i;
    }
    MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < N; ++i) {
        right &= out[i] == size * (size - 1) / 2 + size * i;
    }
    MPI_Request requests[2];
    int token = rank == 0 ? 42 : 0;
    MPI_Iallreduce(MPI_IN_PLACE, in, N, MPI_INT, MPI_MAX, comm, &requests[0]);
    MPI_Ibcast(&token, 1, MPI_INT, 0, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    right &= token == 42 && in[7] == size - 1 + 7;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_exact_length", "true");
    MPI_Allreduce_init(MPI_IN_PLACE, in, 5, MPI_INT, MPI_SUM, comm, info, &requests[0]);
    MPI_Info_free(&info);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 5; ++i) {
            in[i] = i + round;
        }
        MPI_Start(&requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        right &= in[4] == size * (4 + round);
    }
    MPI_Request_free(&requests[0]);
    check_on(comm, name, right);
}

static void agreements(MPI_Comm comm, const char *name)
{
    int rank, size, flag, right;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    flag = ~(1 << rank);
    right = MPI_SUCCESS == MPIX_Comm_agree(comm, &flag) && flag == ~((1 << size) - 1);
    MPI_Request request;
    flag = ~(1 << rank);
    right &= MPI_SUCCESS == MPIX_Comm_iagree(comm, &flag, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_on(comm, name, right && flag == ~((1 << size) - 1));
}

/* Of the ranks with even numbers and the others, by an inter-communicator between them. */
static void agreements_of_groups(void)
{
    MPI_Comm half, both;
    MPI_Comm_split(MPI_COMM_WORLD, me % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - me % 2, 7, &both);
    int flag = ~(1 << me), all = ~((1 << ranks) - 1);
    int right = MPI_SUCCESS == MPIX_Comm_agree(both, &flag) && flag == all;
    for (int round = 0; round < 3; ++round) {
        MPI_Request request = MPI_REQUEST_NULL;
        flag = ~(1 << me);
        right &= MPI_SUCCESS == MPIX_Comm_iagree(both, &flag, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        right &= flag == all;
    }
    check_on(MPI_COMM_WORLD, "agreements of two groups", right);
    MPI_Comm shared;
    int remote = 0, rc = MPI_Comm_split_type(both, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, &shared);
    right = MPI_SUCCESS == rc && MPI_COMM_NULL != shared;
    if (right) {
        MPI_Comm_remote_size(shared, &remote);
        MPI_Comm_free(&shared);
    }
    check_on(MPI_COMM_WORLD, "a split of two groups by host", right && remote == (ranks + me % 2) / 2);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

static void session(int number)
{
    MPI_Session session;
    char text[100], tag[100];
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    MPI_Session_init(info, MPI_ERRORS_RETURN, &session);
    MPI_Info_free(&info);
    snprintf(tag, sizeof tag, "hetccl.test.%d", number);
    MPI_Comm all = from_session(session, "mpi://WORLD", tag);
    MPI_Comm self = from_session(session, "mpi://SELF", tag);
    MPI_Comm_rank(all, &me);
    MPI_Comm_size(all, &ranks);
    snprintf(text, sizeof text, "session %d: collectives on mpi://WORLD", number);
    collectives(all, text);
    snprintf(text, sizeof text, "session %d: collectives on mpi://SELF", number);
    collectives(self, text);
    MPI_Comm copy, half;
    MPI_Comm_dup(all, &copy);
    MPI_Comm_split(copy, me % 2, -me, &half);
    snprintf(text, sizeof text, "session %d: collectives on a copy", number);
    collectives(copy, text);
    snprintf(text, sizeof text, "session %d: collectives on halves", number);
    collectives(half, text);
    snprintf(text, sizeof text, "session %d: agreement", number);
    agreements(all, text);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&self);
    MPI_Comm_free(&all);
    MPI_Session_finalize(&session);
}

int main(int argc, char **argv)
{
    int with_world = argc > 1 && 0 == strcmp(argv[1], "with-world");
    if (with_world) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &me);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        collectives(MPI_COMM_WORLD, "MPI_COMM_WORLD before sessions");
    }
    session(1);
    if (!(argc > 1 && 0 == strcmp(argv[1], "once"))) {
        session(2);
    }
    if (with_world) {
        agreements(MPI_COMM_WORLD, "MPI_COMM_WORLD: agreement");
        if (ranks > 1) agreements_of_groups();
        MPI_Comm copy;
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpi_assert_no_any_source", "true");
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &copy);
        MPI_Info_free(&info);
        collectives(copy, "a communicator with info hints");
        MPI_Comm_free(&copy);
        MPI_Finalize();
    }
    if (me == 0 && 0 == failures) {
        printf("all right\n");
    }
    return failures != 0;
}
