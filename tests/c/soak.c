/* Random collectives on random communicators, each result checked.
 *
 *   soak SEED SECONDS MEMORY [VICTIM MS]
 *
 * With a victim, that rank is killed after MS ms, wherever it is, and every other rank must come to an error: it prints
 *   rank R: class C after T ms
 * for the call that failed. */
#include <mpi.h>

#include "kinds.h"
#include "memory.h"
#include "persistent.h"
#include "soak.h"
#include "together.h"

enum { MOST_RANKS = 8, MOST_BYTES = 1 << 20, SLOTS = 4, COMMS = 5, REPORT_SECONDS = 2, BLOCKING_TURNS = 64 };


static MPI_Datatype types[TYPES];
static MPI_Op ops[OPS];
static int me, ranks, dying;
static enum memory memory;
static long calls;
static double call_began;

static struct comm {
    MPI_Comm comm;
    int rank, size;
} comms[COMMS];

/* A call with its buffers. */
static struct slot {
    char *in, *out;
    const struct comm *comm;
    enum kind kind;
    enum form form;
    enum type type;
    enum op op;
    int n, root, in_place, salt;
    int counts[MOST_RANKS], starts[MOST_RANKS], offsets[MOST_RANKS];
    MPI_Datatype each[MOST_RANKS];
    MPI_Request request;
} slots[SLOTS];
static char *scratch;

/* A rank's end: with the class of its error where one was to come. */
static void fail(const char *what, int code)
{
    char line[256];
    int class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    if (dying) {
        snprintf(line, sizeof line, "rank %d: class %d after %.0f ms\n", me, class, (seconds() - call_began) * 1e3);
        say(line);
        leave_together(ranks - 1);
    }
    snprintf(line, sizeof line, "FAILED rank %d: %s gave class %d\n", me, what, class);
    say(line);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must_succeed(const char *what, int code)
{
    if (MPI_SUCCESS != code) {
        fail(what, code);
    }
}

static int is_block_wise(enum kind kind)
{
    return ALLGATHER == kind || ALLTOALL == kind || GATHER == kind || SCATTER == kind || REDUCE_SCATTER_BLOCK == kind;
}

/* Elements from one rank to another where sizes differ. */
static int between(int n, int from, int to) { return n + (from + to) % 2; }

static int start_between(int n, int from, int to)
{
    int start = 0;
    for (int other = 0; other < to; ++other) {
        start += between(n, from, other);
    }
    return start;
}

static int is_pairwise(enum kind kind) { return ALLTOALLV == kind || ALLTOALLW == kind; }

/* Elements of the input and the output of this rank. */
static int in_elements(const struct slot *s)
{
    const int size = s->comm->size, rank = s->comm->rank, all = start_between(s->n, is_pairwise(s->kind) ? rank : 0, size);
    switch (s->kind) {
    case BARRIER: return 0;
    case ALLTOALL: case REDUCE_SCATTER_BLOCK: return s->n * size;
    case SCATTER: return rank == s->root ? s->n * size : 0;
    case SCATTERV: return rank == s->root ? all : 0;
    case REDUCE_SCATTER: case ALLTOALLV: case ALLTOALLW: return all;
    case ALLGATHERV: case GATHERV: return s->counts[rank];
    default: return s->n;
    }
}

static int out_elements(const struct slot *s)
{
    const int size = s->comm->size, rank = s->comm->rank, at_root = rank == s->root;
    switch (s->kind) {
    case BARRIER: case BCAST: return 0;
    case ALLGATHER: case ALLTOALL: return s->n * size;
    case GATHER: return at_root ? s->n * size : 0;
    case GATHERV: return at_root ? start_between(s->n, 0, size) : 0;
    case ALLGATHERV: return start_between(s->n, 0, size);
    case ALLTOALLV: case ALLTOALLW: return start_between(s->n, rank, size);
    case REDUCE: return at_root ? s->n : 0;
    case EXSCAN: return rank > 0 ? s->n : 0;
    case SCATTERV: case REDUCE_SCATTER: return s->counts[rank];
    default: return s->n;
    }
}

/* The rank that element i of the output of a gathering comes from, and its place there. */
static double gathered(const struct slot *s, int i)
{
    const int rank = s->comm->rank;
    if (is_block_wise(s->kind)) {
        const int from = i / s->n, at = i % s->n;
        return element(from, ALLTOALL == s->kind ? rank * s->n + at : at, s->salt);
    }
    int from = s->comm->size - 1;
    while (s->starts[from] > i) {
        --from;
    }
    const int at = i - s->starts[from];
    return element(from, is_pairwise(s->kind) ? start_between(s->n, from, rank) + at : at, s->salt);
}

static double expected(const struct slot *s, int i)
{
    const int rank = s->comm->rank, size = s->comm->size;
    switch (s->kind) {
    case ALLREDUCE: case REDUCE: return combined(s->op, 0, size, i, s->salt);
    case SCAN: return combined(s->op, 0, rank + 1, i, s->salt);
    case EXSCAN: return combined(s->op, 0, rank, i, s->salt);
    case REDUCE_SCATTER_BLOCK: return combined(s->op, 0, size, rank * s->n + i, s->salt);
    case REDUCE_SCATTER: return combined(s->op, 0, size, s->starts[rank] + i, s->salt);
    case SCATTER: return element(s->root, rank * s->n + i, s->salt);
    case SCATTERV: return element(s->root, s->starts[rank] + i, s->salt);
    default: return gathered(s, i);
    }
}

static void compare(const struct slot *s, const char *buffer, int count, int is_bcast)
{
    const int width = widths[s->type];
    memory_get(memory, scratch, buffer, (size_t) count * width);
    /* Long ones: the ends and some in between. */
    const int stride = count > 4096 ? 61 : 1;
    for (int i = 0; i < count; i = i + stride < count || i == count - 1 ? i + stride : count - 1) {
        const double want = is_bcast ? element(s->root, i, s->salt) : expected(s, i), have = load(s->type, scratch + i * width);
        if (want != have) {
            char line[256];
            snprintf(line, sizeof line,
                     "FAILED rank %d of %d: %s form %d type %d op %d n %d root %d in place %d: element %d is %g, not %g\n",
                     s->comm->rank, s->comm->size, names[s->kind], s->form, s->type, s->op, s->n, s->root, s->in_place, i, have, want);
            say(line);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void check(const struct slot *s)
{
    if (BCAST == s->kind) {
        compare(s, s->in, s->n, 1);
    } else {
        compare(s, s->out, out_elements(s), 0);
    }
}

/* What the call reads; the output holds something else. */
static void fill(const struct slot *s)
{
    const int width = widths[s->type], count = in_elements(s), place = ALLGATHER == s->kind ? s->comm->rank * s->n : 0;
    for (int i = 0; i < count; ++i) {
        store(s->type, BCAST == s->kind && s->comm->rank != s->root ? 0 : element(s->comm->rank, i, s->salt), scratch + i * width);
    }
    memory_put(memory, s->in_place ? s->out + place * width : s->in, scratch, (size_t) count * width);
    if (!s->in_place) {
        const int outputs = out_elements(s);
        memset(scratch, 0, (size_t) outputs * width);
        memory_put(memory, s->out, scratch, (size_t) outputs * width);
    }
}

#define FORM(Name, name, ...)                                                                                           \
    switch (s->form) {                                                                                                  \
    case BLOCKING: return MPI_##Name(__VA_ARGS__);                                                                      \
    case NONBLOCKING: return MPI_I##name(__VA_ARGS__, &s->request);                                                     \
    default: return MADE_BEFORE(Name, __VA_ARGS__);                                                                     \
    }
#define MADE_BEFORE(Name, ...) MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &s->request)

static int call(struct slot *s)
{
    const MPI_Comm comm = s->comm->comm;
    const MPI_Datatype type = types[s->type];
    const MPI_Op op = ops[s->op];
    void *const in = s->in_place ? MPI_IN_PLACE : s->in, *const out = s->out;
    const int n = s->n, root = s->root, mine = s->counts[s->comm->rank], *const counts = s->counts, *const starts = s->starts;
    switch (s->kind) {
    case ALLGATHER: FORM(Allgather, allgather, in, n, type, out, n, type, comm)
    case ALLGATHERV: FORM(Allgatherv, allgatherv, in, mine, type, out, counts, starts, type, comm)
    case ALLREDUCE: FORM(Allreduce, allreduce, in, out, n, type, op, comm)
    case ALLTOALL: FORM(Alltoall, alltoall, in, n, type, out, n, type, comm)
    case ALLTOALLV: FORM(Alltoallv, alltoallv, in, counts, starts, type, out, counts, starts, type, comm)
    case ALLTOALLW: FORM(Alltoallw, alltoallw, in, counts, s->offsets, s->each, out, counts, s->offsets, s->each, comm)
    case BARRIER: FORM(Barrier, barrier, comm)
    case BCAST: FORM(Bcast, bcast, in, n, type, root, comm)
    case EXSCAN: FORM(Exscan, exscan, in, out, n, type, op, comm)
    case GATHER: FORM(Gather, gather, in, n, type, out, n, type, root, comm)
    case GATHERV: FORM(Gatherv, gatherv, in, mine, type, out, counts, starts, type, root, comm)
    case REDUCE: FORM(Reduce, reduce, in, out, n, type, op, root, comm)
    case REDUCE_SCATTER: FORM(Reduce_scatter, reduce_scatter, in, out, counts, type, op, comm)
    case REDUCE_SCATTER_BLOCK: FORM(Reduce_scatter_block, reduce_scatter_block, in, out, n, type, op, comm)
    case SCAN: FORM(Scan, scan, in, out, n, type, op, comm)
    case SCATTER: FORM(Scatter, scatter, in, n, type, out, n, type, root, comm)
    default: FORM(Scatterv, scatterv, in, counts, starts, type, out, mine, type, root, comm)
    }
}

/* Draws a call for a communicator, alike on all its ranks. */
static void draw(struct slot *s, const struct comm *comm, enum form form)
{
    s->comm = comm;
    s->form = form;
    s->kind = (enum kind) below(KINDS);
    s->type = (enum type) below(TYPES);
    s->op = (enum op) below(OPS);
    s->n = random_count(MOST_BYTES / 8 / MOST_RANKS - 1);
    s->root = below(1 << 20) % comm->size; /* the same draws where parts differ in size */
    s->salt = below(1000);
    const int wants = below(4);
    s->in_place = 0 == wants && (ALLREDUCE == s->kind || SCAN == s->kind || ALLGATHER == s->kind);
    for (int r = 0; r < comm->size; ++r) {
        const int from = is_pairwise(s->kind) ? comm->rank : 0;
        s->counts[r] = between(s->n, from, r);
        s->starts[r] = start_between(s->n, from, r);
        s->offsets[r] = s->starts[r] * widths[s->type];
        s->each[r] = types[s->type];
    }
}

static void complete(struct slot *s)
{
    must_succeed(names[s->kind], MPI_Wait(&s->request, MPI_STATUS_IGNORE));
    check(s);
    ++calls;
}

static void run_persistent(struct slot *s)
{
    must_succeed(names[s->kind], call(s));
    for (int times = 1 + below(3); times > 0; --times) {
        fill(s);
        must_succeed("MPI_Start", MPI_Start(&s->request));
        complete(s);
    }
    must_succeed("MPI_Request_free", MPI_Request_free(&s->request));
}

/* One blocking or persistent call, or some nonblocking ones at once, waited for in any order. */
static void some_calls(void)
{
    const int which = below(COMMS), form = below(FORMS), first = below(1 << 20);
    const struct comm *comm = MPI_COMM_NULL == comms[which].comm ? &comms[0] : &comms[which];
    const int at_once = NONBLOCKING == form ? 1 + below(SLOTS) : 1;
    call_began = seconds();
    for (int i = 0; i < at_once; ++i) {
        draw(&slots[i], comm, (enum form) form);
        if (PERSISTENT == form) {
            run_persistent(&slots[i]);
            continue;
        }
        fill(&slots[i]);
        must_succeed(names[slots[i].kind], call(&slots[i]));
        if (BLOCKING == form) {
            check(&slots[i]);
            ++calls;
        }
    }
    for (int i = 0; NONBLOCKING == form && i < at_once; ++i) {
        complete(&slots[(first + i) % at_once]);
    }
}

/* Makes or frees a communicator. */
static void change_communicators(void)
{
    struct comm *slot = &comms[1 + below(COMMS - 1)];
    const int how = below(4), step = 1 + below(ranks), backwards = below(2), from = below(COMMS);
    call_began = seconds();
    if (MPI_COMM_NULL != slot->comm) {
        must_succeed("MPI_Comm_free", MPI_Comm_free(&slot->comm));
        return;
    }
    const MPI_Comm whole = comms[0].comm;
    if (how < 2) {
        const MPI_Comm parent = MPI_COMM_NULL == comms[from].comm ? whole : comms[from].comm;
        must_succeed("MPI_Comm_dup", MPI_Comm_dup(parent, &slot->comm));
    } else {
        must_succeed("MPI_Comm_split", MPI_Comm_split(whole, me / step, backwards ? -me : me, &slot->comm));
    }
    MPI_Comm_rank(slot->comm, &slot->rank);
    MPI_Comm_size(slot->comm, &slot->size);
}

static int goes_on(double began, double limit)
{
    int on = seconds() - began < limit;
    call_began = seconds();
    must_succeed("MPI_Bcast", MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return on;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    random_state = strtoull(argv[1], NULL, 10);
    const double limit = atof(argv[2]), began = seconds();
    memory = memory_of_rank(argv[3], me);
    dying = argc > 5;
    const MPI_Datatype known[TYPES] = {MPI_INT8_T,  MPI_UINT8_T,  MPI_INT32_T, MPI_UINT32_T,
                                       MPI_INT64_T, MPI_UINT64_T, MPI_FLOAT,   MPI_DOUBLE};
    const MPI_Op known_ops[OPS] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
    memcpy(types, known, sizeof known);
    memcpy(ops, known_ops, sizeof known_ops);
    comms[0] = (struct comm){MPI_COMM_WORLD, me, ranks};
    for (int i = 1; i < COMMS; ++i) {
        comms[i].comm = MPI_COMM_NULL;
    }
    scratch = malloc(MOST_BYTES);
    for (int i = 0; i < SLOTS; ++i) {
        slots[i].in = memory_alloc(memory, MOST_BYTES);
        slots[i].out = memory_alloc(memory, MOST_BYTES);
    }
    if (ranks > MOST_RANKS || NULL == scratch) {
        return 2;
    }
    must_succeed("MPI_Barrier", MPI_Barrier(MPI_COMM_WORLD));
    if (dying && me == atoi(argv[4])) {
        die_after(atoi(argv[5]));
    }
    double next_report = began;
    for (int turn = 0; turn % BLOCKING_TURNS || goes_on(began, limit); ++turn) {
        if (0 == below(8)) {
            change_communicators();
        } else {
            some_calls();
        }
        if (!dying && seconds() >= next_report) {
            report(me, began, calls);
            next_report += REPORT_SECONDS;
        }
    }
    if (dying) {
        say("FAILED nobody was lost\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 1; i < COMMS; ++i) {
        if (MPI_COMM_NULL != comms[i].comm) {
            MPI_Comm_free(&comms[i].comm);
        }
    }
    report(me, began, calls);
    MPI_Finalize();
    return 0;
}
