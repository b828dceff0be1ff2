/* Topologies and inter-communicators, made locally, by spawning and by connecting. */
#include "check.h"

/* ---- neighbourhoods: every neighbour gets a number that says who sent it and for which of its slots ---- */

static int label(int from, int slot) { return 1000 * from + slot; }

static void cartesian(const char *name, int dims, const int *sizes, const int *periods)
{
    MPI_Comm grid;
    int right = 1, slots = 2 * dims, out[8], in[8], self;
    MPI_Cart_create(MPI_COMM_WORLD, dims, sizes, periods, 0, &grid);
    if (MPI_COMM_NULL == grid) {
        check(name, 1);
        return;
    }
    MPI_Comm_rank(grid, &self);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < slots; ++i) {
            out[i] = label(self, i);
            in[i] = -1;
        }
        if (0 == round) {
            MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, grid);
        } else if (1 == round) {
            MPI_Request request;
            MPI_Ineighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, grid, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Request request;
            MPI_Neighbor_alltoall_init(out, 1, MPI_INT, in, 1, MPI_INT, grid, MPI_INFO_NULL, &request);
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Request_free(&request);
        }
        for (int d = 0; d < dims; ++d) {
            int minus, plus;
            MPI_Cart_shift(grid, d, 1, &minus, &plus);
            right &= in[2 * d] == (MPI_PROC_NULL == minus ? -1 : label(minus, 2 * d + 1));
            right &= in[2 * d + 1] == (MPI_PROC_NULL == plus ? -1 : label(plus, 2 * d));
        }
    }
    int own = self + 1, around[8];
    memset(around, 0xff, sizeof(around));
    MPI_Neighbor_allgather(&own, 1, MPI_INT, around, 1, MPI_INT, grid);
    for (int d = 0; d < dims; ++d) {
        int minus, plus;
        MPI_Cart_shift(grid, d, 1, &minus, &plus);
        right &= around[2 * d] == (MPI_PROC_NULL == minus ? -1 : minus + 1);
        right &= around[2 * d + 1] == (MPI_PROC_NULL == plus ? -1 : plus + 1);
    }
    MPI_Comm_free(&grid);
    check(name, right);
}

static void graphs(void)
{
    MPI_Comm graph;
    int next = (me + 1) % ranks, after = (me + 2) % ranks, before = (me + ranks - 1) % ranks;
    int earlier = (me + 2 * ranks - 2) % ranks;
    /* The next rank twice, the one after it, and itself. */
    int to[4] = {next, after, next, me}, from[4] = {before, earlier, before, me};
    int out[4], in[4] = {-1, -1, -1, -1}, counts[4] = {1, 1, 1, 1}, starts[4] = {0, 1, 2, 3}, right = 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 4, from, MPI_UNWEIGHTED, 4, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &graph);
    for (int i = 0; i < 4; ++i) {
        out[i] = label(me, i);
    }
    MPI_Neighbor_alltoallv(out, counts, starts, MPI_INT, in, counts, starts, MPI_INT, graph);
    if (ranks > 2) {
        right = in[0] == label(before, 0) && in[1] == label(earlier, 1) && in[2] == label(before, 2) && in[3] == label(me, 3);
    }
    int own = me + 7, around[4] = {-1, -1, -1, -1};
    MPI_Neighbor_allgatherv(&own, 1, MPI_INT, around, counts, starts, MPI_INT, graph);
    for (int i = 0; i < 4; ++i) {
        right &= around[i] == from[i] + 7;
    }
    MPI_Aint places[4];
    MPI_Datatype types[4];
    for (int i = 0; i < 4; ++i) {
        places[i] = (MPI_Aint) (i * sizeof(int));
        types[i] = MPI_INT;
    }
    int again[4] = {-1, -1, -1, -1};
    MPI_Neighbor_alltoallw(out, counts, places, types, again, counts, places, types, graph);
    right &= 0 == memcmp(in, again, sizeof(in));
    MPI_Comm_free(&graph);
    check("a graph with a neighbour twice and oneself", right);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &graph);
    MPI_Neighbor_allgather(&own, 1, MPI_INT, around, 1, MPI_INT, graph);
    check("a graph without neighbours", around[0] == from[0] + 7);
    MPI_Comm_free(&graph);
}

static void topologies(void)
{
    int line[1] = {ranks}, ring[1] = {1}, open[1] = {0}, plane[2] = {ranks, 1}, both[2] = {1, 1}, mixed[2] = {0, 1};
    int small[1] = {2};
    cartesian("periodic ring", 1, line, ring);
    cartesian("open line", 1, line, open);
    cartesian("torus with a dimension of one", 2, plane, both);
    cartesian("open line with a periodic dimension of one", 2, plane, mixed);
    if (ranks >= 2) {
        cartesian("periodic dimension of two", 1, small, ring);
    }
    graphs();
}

/* ---- inter-communicators ---- */

/* Every collective between a group of `mine` ranks and one of `theirs`; `low` names this side. */
static int between(MPI_Comm inter, int low)
{
    int mine, theirs, rank, right = 1;
    MPI_Comm_size(inter, &mine);
    MPI_Comm_remote_size(inter, &theirs);
    MPI_Comm_rank(inter, &rank);
    const int base = low ? 10 : 100, other = low ? 100 : 10;
    int own = base + rank, sum = -1, *all = malloc(sizeof(int) * (theirs + mine) * 2), others = 0;
    for (int r = 0; r < theirs; ++r) {
        others += other + r;
    }
    MPI_Barrier(inter);
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, inter);
    right &= sum == others;
    MPI_Request request;
    sum = -1;
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    right &= sum == others;
    MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int r = 0; r < theirs; ++r) {
        right &= all[r] == other + r;
    }
    int *out = malloc(sizeof(int) * theirs);
    for (int r = 0; r < theirs; ++r) {
        out[r] = base * 1000 + rank * 100 + r;
    }
    MPI_Alltoall(out, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int r = 0; r < theirs; ++r) {
        right &= all[r] == other * 1000 + r * 100 + rank;
    }
    for (int side = 0; side < 2; ++side) {
        int size = (side == low) ? mine : theirs;
        for (int at = 0; at < size; ++at) {
            int here = side == low, root = !here ? at : rank == at ? MPI_ROOT : MPI_PROC_NULL;
            int token = here && rank == at ? 4711 + at : -1;
            MPI_Bcast(&token, root == MPI_PROC_NULL ? 0 : 1, MPI_INT, root, inter);
            right &= here || token == 4711 + at;
            sum = -1;
            MPI_Reduce(&own, &sum, root == MPI_PROC_NULL ? 0 : 1, MPI_INT, MPI_SUM, root, inter);
            right &= MPI_ROOT != root || sum == others;
            MPI_Gather(&own, 1, MPI_INT, all, 1, MPI_INT, root, inter);
            for (int r = 0; MPI_ROOT == root && r < theirs; ++r) {
                right &= all[r] == other + r;
            }
            for (int r = 0; r < theirs; ++r) {
                all[r] = 9000 + r;
            }
            token = -1;
            MPI_Scatter(all, 1, MPI_INT, &token, 1, MPI_INT, root, inter);
            right &= here || token == 9000 + rank;
        }
    }
    int total = mine * theirs * 2, *vector = malloc(sizeof(int) * total), *result = malloc(sizeof(int) * total);
    for (int i = 0; i < total; ++i) {
        vector[i] = base + i;
    }
    MPI_Reduce_scatter_block(vector, result, theirs * 2, MPI_INT, MPI_SUM, inter);
    for (int i = 0; i < theirs * 2; ++i) {
        right &= result[i] == theirs * (other + rank * theirs * 2 + i);
    }
    MPI_Barrier(inter);
    free(all), free(out), free(vector), free(result);
    return right;
}

static void local_groups(void)
{
    if (ranks < 2) {
        printf("SKIPPED inter-communicators of this job: they take two ranks\n");
        return;
    }
    MPI_Comm half, inter, merged;
    int first = ranks / 3 > 0 ? ranks / 3 : 1, low = me < first, count = 0, one = 1;
    MPI_Comm_split(MPI_COMM_WORLD, low, me, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? first : 0, 3, &inter);
    check("collectives between two groups", between(inter, low));
    MPI_Intercomm_merge(inter, !low, &merged);
    MPI_Allreduce(&one, &count, 1, MPI_INT, MPI_SUM, merged);
    check("merged groups", count == ranks);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static int with_others(MPI_Comm inter, int low)
{
    MPI_Comm merged;
    int one = 1, count = 0, size, right = between(inter, low);
    MPI_Intercomm_merge(inter, !low, &merged);
    MPI_Comm_size(merged, &size);
    MPI_Allreduce(&one, &count, 1, MPI_INT, MPI_SUM, merged);
    right &= count == size;
    MPI_Comm_free(&merged);
    return right;
}

static void spawned(char *program)
{
    MPI_Comm children;
    char *arguments[] = {"child", NULL};
    MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    check("collectives with spawned processes", with_others(children, 1));
    MPI_Comm_disconnect(&children);
}

/* Two halves of the job meet over a port. */
static void connected(void)
{
    if (ranks < 2) {
        printf("SKIPPED connect and accept: they take two ranks\n");
        return;
    }
    MPI_Comm half, inter;
    char port[MPI_MAX_PORT_NAME] = "";
    int low = me < ranks / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, me, &half);
    if (0 == me) {
        MPI_Open_port(MPI_INFO_NULL, port);
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (low) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    } else {
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    }
    check("collectives over a port", with_others(inter, low));
    MPI_Comm_disconnect(&inter);
    MPI_Comm_free(&half);
    if (0 == me) {
        MPI_Close_port(port);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    if (MPI_COMM_NULL != parent) {
        int right = with_others(parent, 0);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return right ? 0 : 1;
    }
    topologies();
    local_groups();
    if (argc > 1 && 0 == strcmp(argv[1], "dynamic")) {
        spawned(argv[0]);
        connected();
    }
    return end();
}
