/* Collectives in graphs: recorded once, launched again and again, between other calls. Part of nccl.c. */

typedef void *graph_t;
static int (*begin_capture)(stream_t, int), (*end_capture)(stream_t, graph_t *), (*graph_instantiate)(graph_t *, graph_t, unsigned long long);
static int (*graph_launch)(graph_t, stream_t), (*executable_destroy)(graph_t), (*graph_destroy)(graph_t);

static void load_graphs(void)
{
    void *library = on_cuda ? cuda.library : hip.library;
    *(void **) &begin_capture = find(library, on_cuda ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture");
    *(void **) &end_capture = find(library, on_cuda ? "cuStreamEndCapture" : "hipStreamEndCapture");
    *(void **) &graph_instantiate = find(library, on_cuda ? "cuGraphInstantiateWithFlags" : "hipGraphInstantiateWithFlags");
    *(void **) &graph_launch = find(library, on_cuda ? "cuGraphLaunch" : "hipGraphLaunch");
    *(void **) &executable_destroy = find(library, on_cuda ? "cuGraphExecDestroy" : "hipGraphExecDestroy");
    *(void **) &graph_destroy = find(library, on_cuda ? "cuGraphDestroy" : "hipGraphDestroy");
}

/* Records the calls of all local ranks in the strictest mode: each rank's stream is a graph of its own. */
#define RECORD(executables, calls)                                                                                     \
    do {                                                                                                               \
        for (int e = 0; e < local; ++e) must("begin capture", begin_capture(ranks[e].stream, 0));                      \
        NCCL(ncclGroupStart());                                                                                        \
        for (int e = 0; e < local; ++e) {                                                                              \
            struct rank *r = &ranks[e];                                                                                \
            calls                                                                                                      \
        }                                                                                                              \
        NCCL(ncclGroupEnd());                                                                                          \
        finish_recording(executables);                                                                                 \
    } while (0)

static void finish_recording(graph_t *executables)
{
    for (int e = 0; e < local; ++e) {
        graph_t graph = NULL;
        must("end capture", end_capture(ranks[e].stream, &graph));
        must("instantiate", graph_instantiate(&executables[e], graph, 0));
        must("graph destroy", graph_destroy(graph));
    }
}

static void launch(graph_t *executables)
{
    for (int e = 0; e < local; ++e) must("launch", graph_launch(executables[e], ranks[e].stream));
}

static void destroy(graph_t *executables)
{
    for (int e = 0; e < local; ++e) must("executable destroy", executable_destroy(executables[e]));
}

static double shifted(const struct rank *r, int type, int op, size_t i)
{
    (void) op;
    return value(type, (r->rank + r->size - 1) % r->size, i);
}

static double averaged(const struct rank *r, int type, int op, size_t i) { return combined(type, op, r->size, i); }

static double powers(const struct rank *r, int type, int op, size_t i)
{
    return combined(type, op, r->size, i) * r->size;
}

/* Two graphs of one communicator, launched in turn and between other calls. */
static void graphs(size_t count)
{
    int type = ncclFloat32;
    graph_t sums[MOST], ring[MOST];
    load_graphs();
    RECORD(sums, {
        NCCL(ncclAllReduce(r->send, r->recv, count, type, ncclAvg, r->comm, r->stream));
    });
    RECORD(ring, {
        NCCL(ncclSend(r->send, count, type, (r->rank + 1) % r->size, r->comm, r->stream));
        NCCL(ncclRecv(r->recv, count, type, (r->rank + r->size - 1) % r->size, r->comm, r->stream));
    });
    for (int round = 0; round < 3; ++round) {
        prepare(type, count);
        launch(sums);
        synchronize();
        for (int i = 0; i < local; ++i) compare(&ranks[i], "allreduce in a graph", type, ranks[i].recv, count, averaged, ncclAvg);
        prepare(type, count);
        launch(sums);
        launch(ring);
        synchronize();
        for (int i = 0; i < local; ++i) compare(&ranks[i], "messages in a graph", type, ranks[i].recv, count, shifted, 0);
        prepare(type, count);
        launch(ring);
        NCCL(ncclGroupStart());
        for (int e = 0; e < local; ++e) NCCL(ncclAllReduce(ranks[e].send, ranks[e].send, count, type, ncclSum, ranks[e].comm, ranks[e].stream));
        NCCL(ncclGroupEnd());
        launch(sums);
        launch(sums);
        synchronize();
        for (int i = 0; i < local; ++i) compare(&ranks[i], "graphs between calls", type, ranks[i].recv, count, reduced, ncclSum);
    }
    destroy(ring);
    /* Several calls in one graph, not waited for between launches, in words that the other graph had. */
    RECORD(ring, {
        NCCL(ncclAllReduce(r->send, r->recv, count, type, ncclSum, r->comm, r->stream));
    });
    graph_t both[MOST];
    for (int e = 0; e < local; ++e) must("begin capture", begin_capture(ranks[e].stream, 0));
    for (int step = 0; step < 2; ++step) {
        NCCL(ncclGroupStart());
        for (int e = 0; e < local; ++e) {
            void *from = step ? ranks[e].recv : ranks[e].send;
            NCCL(ncclAllReduce(from, ranks[e].recv, count, type, ncclSum, ranks[e].comm, ranks[e].stream));
        }
        NCCL(ncclGroupEnd());
    }
    finish_recording(both);
    prepare(type, count);
    for (int round = 0; round < 4; ++round) launch(round % 2 ? both : ring);
    synchronize();
    for (int i = 0; i < local; ++i) compare(&ranks[i], "several launches in a row", type, ranks[i].recv, count, powers, ncclSum);
    destroy(both), destroy(ring), destroy(sums);
    /* A group's streams are all of one graph, or none is. NCCL says so at the call, and not on one rank alone. */
    if (!careful("a group of which one stream records")) return;
    stream_t other;
    must("stream", stream_create(&other, 1));
    graph_t graph = NULL;
    must("begin capture", begin_capture(ranks[0].stream, 2));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(ranks[0].send, ranks[0].recv, count, type, ncclSum, ranks[0].comm, ranks[0].stream));
    NCCL(ncclAllReduce(ranks[0].send, ranks[0].recv, count, type, ncclSum, ranks[0].comm, other));
    nccl("a group of which one stream records", ncclGroupEnd(), ncclInvalidUsage);
    must("end capture", end_capture(ranks[0].stream, &graph));
    must("graph destroy", graph_destroy(graph));
    ok(ranks[0].rank, "a group of which one stream records");
}
