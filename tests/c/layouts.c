/* Buffers of every shape: in place, empty, derived, with gaps, shifted below their address, every root. */
#include "check.h"

#define N 12

static int value(int rank, int i) { return 100 * rank + i; }

static void fill(int *data, int n, int rank)
{
    for (int i = 0; i < n; ++i) {
        data[i] = value(rank, i);
    }
}

static void in_place(void)
{
    int *all = malloc(sizeof(int) * N * ranks), right = 1, part[N];
    memset(all, 0xff, sizeof(int) * N * ranks);
    fill(all + me * N, N, me);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, N, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < N * ranks; ++i) {
        right &= all[i] == value(i / N, i % N);
    }
    check("allgather in place", right);
    for (int i = 0; i < N * ranks; ++i) {
        all[i] = 1000 * me + i;
    }
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, N, MPI_INT, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < N * ranks; ++i) {
        right &= all[i] == 1000 * (i / N) + me * N + i % N;
    }
    check("alltoall in place", right);
    for (int i = 0; i < N * ranks; ++i) {
        all[i] = me + i;
    }
    MPI_Reduce_scatter_block(MPI_IN_PLACE, all, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < N; ++i) {
        right &= all[i] == ranks * (ranks - 1) / 2 + ranks * (me * N + i);
    }
    check("reduce_scatter_block in place", right);
    for (int root = 0; root < ranks; ++root) {
        fill(part, N, me);
        memset(all, 0xff, sizeof(int) * N * ranks);
        fill(all + me * N, N, me);
        MPI_Gather(me == root ? MPI_IN_PLACE : part, N, MPI_INT, all, N, MPI_INT, root, MPI_COMM_WORLD);
        right = 1;
        for (int i = 0; me == root && i < N * ranks; ++i) {
            right &= all[i] == value(i / N, i % N);
        }
        for (int i = 0; i < N * ranks; ++i) {
            all[i] = value(i / N, i % N);
        }
        MPI_Scatter(all, N, MPI_INT, me == root ? MPI_IN_PLACE : part, N, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < N; ++i) {
            right &= me == root ? all[me * N + i] == value(me, i) : part[i] == value(me, i);
        }
        fill(part, N, me);
        int sums[N];
        memcpy(sums, part, sizeof(sums));
        MPI_Reduce(me == root ? MPI_IN_PLACE : part, me == root ? sums : NULL, N, MPI_INT, MPI_SUM, root,
                   MPI_COMM_WORLD);
        for (int i = 0; me == root && i < N; ++i) {
            right &= sums[i] == 100 * ranks * (ranks - 1) / 2 + ranks * i;
        }
        check("gather, scatter and reduce in place at each root", right);
    }
    fill(part, N, me);
    MPI_Scan(MPI_IN_PLACE, part, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < N; ++i) {
        right &= part[i] == 100 * me * (me + 1) / 2 + (me + 1) * i;
    }
    fill(part, N, me);
    MPI_Exscan(MPI_IN_PLACE, part, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; ++i) {
        right &= 0 == me ? part[i] == value(0, i) : part[i] == 100 * me * (me - 1) / 2 + me * i;
    }
    check("scan and exscan in place", right);
    free(all);
}

static void empty(void)
{
    int nothing = 7, *zeros = calloc(ranks, sizeof(int));
    MPI_Datatype type;
    MPI_Type_contiguous(0, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Bcast(&nothing, 0, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&nothing, 3, type, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&nothing, &nothing + 1, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(&nothing, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(&nothing, 2, type, &nothing, 2, type, MPI_COMM_WORLD);
    MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallv(NULL, zeros, zeros, MPI_INT, NULL, zeros, zeros, MPI_INT, MPI_COMM_WORLD);
    MPI_Gatherv(NULL, 0, MPI_INT, NULL, zeros, zeros, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Reduce_scatter(NULL, NULL, zeros, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Scan(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check("nothing at all, in every way", 7 == nothing);
    MPI_Type_free(&type);
    free(zeros);
}

/* A column of a matrix, resized so that columns lie next to each other. */
static MPI_Datatype column(void)
{
    MPI_Datatype vector, type;
    MPI_Type_vector(N, 1, ranks, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&vector);
    return type;
}

static void derived(void)
{
    int *matrix = malloc(sizeof(int) * N * ranks), row[N], right = 1;
    MPI_Datatype type = column();
    fill(row, N, me);
    memset(matrix, 0, sizeof(int) * N * ranks);
    MPI_Allgather(row, N, MPI_INT, matrix, 1, type, MPI_COMM_WORLD);
    for (int i = 0; i < N * ranks; ++i) {
        right &= matrix[i] == value(i % ranks, i / ranks);
    }
    check("allgather into columns", right);
    right = 1;
    for (int root = 0; root < ranks; ++root) {
        memset(row, 0, sizeof(row));
        MPI_Scatter(matrix, 1, type, row, N, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < N; ++i) {
            right &= row[i] == value(me, i);
        }
    }
    check("scatter of columns", right);
    memset(row, 0, sizeof(row));
    MPI_Request request;
    MPI_Datatype freed = column();
    if (me == ranks - 1) {
        MPI_Ibcast(matrix, 1, freed, ranks - 1, MPI_COMM_WORLD, &request);
    } else {
        MPI_Ibcast(row, N, MPI_INT, ranks - 1, MPI_COMM_WORLD, &request);
    }
    MPI_Type_free(&freed);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    right = 1;
    for (int i = 0; me != ranks - 1 && i < N; ++i) {
        right &= row[i] == value(0, i);
    }
    check("ibcast of a column whose type is freed", right);
    MPI_Type_free(&type);
    free(matrix);
}

/* Data that lies below the address that MPI is given. */
static void below(void)
{
    MPI_Datatype type;
    int memory[3 * N], lengths[2] = {1, 1}, displacements[2] = {-2, 0}, sums[3 * N], right = 1;
    MPI_Type_indexed(2, lengths, displacements, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 3 * N; ++i) {
        memory[i] = 0 == me ? i : -1;
        sums[i] = -1;
    }
    MPI_Bcast(memory + 2, 3, type, 0, MPI_COMM_WORLD);
    /* elements at 2, 5 and 8, each with data at itself and two before */
    for (int e = 2; e <= 8; e += 3) {
        right &= memory[e] == e && memory[e - 2] == e - 2 && (0 == me || -1 == memory[e - 1]);
    }
    check("bcast of a type with a negative lower bound", right);
    MPI_Datatype shifted;
    MPI_Aint place[1] = {-8};
    int one[1] = {1};
    MPI_Type_create_hindexed(1, one, place, MPI_DOUBLE, &shifted);
    MPI_Type_commit(&shifted);
    double data[2] = {me, 0}, result[2] = {0, 0};
    MPI_Gather(data + 1, 1, shifted, result, 1, MPI_DOUBLE, 0, MPI_COMM_SELF);
    check("a contiguous type that starts below its address", result[0] == me && 0 == result[1]);
    MPI_Type_free(&type);
    MPI_Type_free(&shifted);
    (void) sums;
}

/* v-variants: gaps, any order, negative displacements, empty blocks. */
static void blocks(void)
{
    int total = 0, right = 1, *counts = malloc(sizeof(int) * ranks), *starts = malloc(sizeof(int) * ranks);
    for (int r = ranks - 1; r >= 0; --r) {
        counts[r] = (r * 2 + 1) % 4;
        starts[r] = total + 1;
        total += counts[r] + 1;
    }
    int *all = malloc(sizeof(int) * (total + 2)), own[4];
    fill(own, 4, me);
    for (int i = 0; i < total + 2; ++i) {
        all[i] = -1;
    }
    MPI_Allgatherv(own, counts[me], MPI_INT, all, counts, starts, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; ++r) {
        for (int i = 0; i < counts[r]; ++i) {
            right &= all[starts[r] + i] == value(r, i);
        }
        right &= -1 == all[starts[r] + counts[r]];
    }
    check("allgatherv backwards with gaps", right);
    right = 1;
    for (int root = 0; root < ranks; ++root) {
        int *shifted = malloc(sizeof(int) * ranks);
        for (int r = 0; r < ranks; ++r) {
            shifted[r] = starts[r] - total; /* relative to the end */
        }
        for (int i = 0; i < total + 2; ++i) {
            all[i] = -1;
        }
        MPI_Gatherv(own, counts[me], MPI_INT, all + total, counts, shifted, MPI_INT, root, MPI_COMM_WORLD);
        for (int r = 0; me == root && r < ranks; ++r) {
            for (int i = 0; i < counts[r]; ++i) {
                right &= all[starts[r] + i] == value(r, i);
            }
        }
        int got[4] = {-1, -1, -1, -1};
        MPI_Scatterv(all + total, counts, shifted, MPI_INT, got, counts[me], MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < 4; ++i) {
            right &= got[i] == (i < counts[me] ? value(me, i) : -1);
        }
        free(shifted);
    }
    check("gatherv and scatterv with negative displacements", right);
    int *out = malloc(sizeof(int) * ranks * 4), *in = malloc(sizeof(int) * ranks * 4);
    int *sends = malloc(sizeof(int) * ranks), *recvs = malloc(sizeof(int) * ranks), *four = malloc(sizeof(int) * ranks);
    for (int r = 0; r < ranks; ++r) {
        sends[r] = (me + 2 * r) % 4;
        recvs[r] = (r + 2 * me) % 4;
        four[r] = 4 * r;
        for (int i = 0; i < 4; ++i) {
            out[4 * r + i] = 1000 * me + 10 * r + i;
            in[4 * r + i] = -1;
        }
    }
    MPI_Alltoallv(out, sends, four, MPI_INT, in, recvs, four, MPI_INT, MPI_COMM_WORLD);
    right = 1;
    for (int r = 0; r < ranks; ++r) {
        for (int i = 0; i < 4; ++i) {
            right &= in[4 * r + i] == (i < recvs[r] ? 1000 * r + 10 * me + i : -1);
        }
    }
    check("alltoallv with empty blocks", right);
    free(all), free(counts), free(starts), free(out), free(in), free(sends), free(recvs), free(four);
}

static void communicators(void)
{
    MPI_Comm half, copy;
    int one = 1, sum = 0, size;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    check("allreduce on MPI_COMM_SELF", 1 == sum);
    MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &half);
    MPI_Comm_dup(half, &copy);
    MPI_Comm_size(copy, &size);
    int reversed = 0, lowest = me, first;
    MPI_Comm_rank(copy, &reversed);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, copy);
    first = me;
    MPI_Bcast(&first, 1, MPI_INT, 0, copy);
    MPI_Allreduce(&me, &lowest, 1, MPI_INT, MPI_MAX, copy);
    check("split with reversed ranks, dup", sum == size && first == lowest);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    in_place();
    empty();
    derived();
    below();
    blocks();
    communicators();
    return end();
}
