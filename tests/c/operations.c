/* Reductions: every predefined operation on every datatype that MPI allows it for, user functions, order. */
#include "check.h"

#include <complex.h>
#include <stddef.h>

#define COUNT 33

/* One check of a predefined operation on a C type: against a loop over the ranks in order. Zeros of complex products have a sign
 * that depends on the order, which MPI leaves open. */
#define PREDEFINED(type, mpi_type, mpi_op, expression, value)                                    \
    do {                                                                                         \
        type in[COUNT], out[COUNT], wanted[COUNT];                                               \
        int right = 1;                                                                           \
        for (int i = 0; i < COUNT; ++i) {                                                        \
            for (int r = 0; r < ranks; ++r) {                                                    \
                type a = wanted[i], b = (type) (value);                                          \
                wanted[i] = 0 == r ? b : (type) (expression);                                    \
                (void) a;                                                                        \
                if (r == me) {                                                                   \
                    in[i] = b;                                                                   \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        MPI_Allreduce(in, out, COUNT, mpi_type, mpi_op, MPI_COMM_WORLD);                         \
        for (int i = 0; i < COUNT; ++i) {                                                        \
            right &= out[i] == wanted[i];                                                        \
        }                                                                                        \
        memset(out, 0, sizeof(out));                                                             \
        MPI_Reduce(in, out, COUNT, mpi_type, mpi_op, ranks - 1, MPI_COMM_WORLD);                 \
        for (int i = 0; i < COUNT; ++i) {                                                        \
            right &= me != ranks - 1 || out[i] == wanted[i];                                     \
        }                                                                                        \
        check(#mpi_op " on " #mpi_type, right);                                                  \
    } while (0)

#define INTEGER(type, mpi_type)                                                       \
    PREDEFINED(type, mpi_type, MPI_SUM, a + b, r + i);                                \
    PREDEFINED(type, mpi_type, MPI_PROD, a *b, 1 + (r + i) % 2);                      \
    PREDEFINED(type, mpi_type, MPI_MIN, a < b ? a : b, (r * 7 + i) % 11);             \
    PREDEFINED(type, mpi_type, MPI_MAX, a > b ? a : b, (r * 7 + i) % 11);             \
    PREDEFINED(type, mpi_type, MPI_LAND, a &&b, (r + i) % 3);                         \
    PREDEFINED(type, mpi_type, MPI_LOR, a || b, (r + i) % 3);                         \
    PREDEFINED(type, mpi_type, MPI_LXOR, !a != !b, (r + i) % 2);                      \
    PREDEFINED(type, mpi_type, MPI_BAND, a &b, 3 + r + i);                            \
    PREDEFINED(type, mpi_type, MPI_BOR, a | b, r + i);                                \
    PREDEFINED(type, mpi_type, MPI_BXOR, a ^ b, r + i)

#define FLOATING(type, mpi_type)                                                      \
    PREDEFINED(type, mpi_type, MPI_SUM, a + b, r + i);                                \
    PREDEFINED(type, mpi_type, MPI_PROD, a *b, 1 + (r + i) % 2);                      \
    PREDEFINED(type, mpi_type, MPI_MIN, a < b ? a : b, (r * 7 + i) % 11);             \
    PREDEFINED(type, mpi_type, MPI_MAX, a > b ? a : b, (r * 7 + i) % 11)

static void predefined(void)
{
    INTEGER(signed char, MPI_SIGNED_CHAR);
    INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER(short, MPI_SHORT);
    INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER(int, MPI_INT);
    INTEGER(unsigned, MPI_UNSIGNED);
    INTEGER(long, MPI_LONG);
    INTEGER(unsigned long, MPI_UNSIGNED_LONG);
    INTEGER(long long, MPI_LONG_LONG);
    INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    FLOATING(float, MPI_FLOAT);
    FLOATING(double, MPI_DOUBLE);
    PREDEFINED(float complex, MPI_C_FLOAT_COMPLEX, MPI_SUM, a + b, r + i * I);
    PREDEFINED(double complex, MPI_C_DOUBLE_COMPLEX, MPI_PROD, a *b, r % 2 ? I : 1);
    PREDEFINED(_Bool, MPI_C_BOOL, MPI_LAND, a &&b, (r + i) % 3);
    PREDEFINED(unsigned char, MPI_BYTE, MPI_BXOR, a ^ b, r + i);
}

/* Long double has padding: compare values. */
static void long_double(void)
{
    long double in = me + 1, out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check("MPI_SUM on MPI_LONG_DOUBLE", out == ranks * (ranks + 1) / 2.0L);
}

#define PAIR(type, mpi_type)                                                                   \
    do {                                                                                       \
        struct {                                                                               \
            type value;                                                                        \
            int index;                                                                         \
        } in[5], least[5], most[5];                                                            \
        int right = 1;                                                                         \
        for (int i = 0; i < 5; ++i) {                                                          \
            in[i].value = (type) ((me * 3 + i) % ranks);                                       \
            in[i].index = me;                                                                  \
        }                                                                                      \
        MPI_Allreduce(in, least, 5, mpi_type, MPI_MINLOC, MPI_COMM_WORLD);                     \
        MPI_Allreduce(in, most, 5, mpi_type, MPI_MAXLOC, MPI_COMM_WORLD);                      \
        for (int i = 0; i < 5; ++i) {                                                          \
            int low = 0, high = 0;                                                             \
            for (int r = 1; r < ranks; ++r) {                                                  \
                low = (r * 3 + i) % ranks < (low * 3 + i) % ranks ? r : low;                   \
                high = (r * 3 + i) % ranks > (high * 3 + i) % ranks ? r : high;                \
            }                                                                                  \
            right &= least[i].index == low && most[i].index == high;                           \
        }                                                                                      \
        check("MINLOC and MAXLOC on " #mpi_type, right);                                       \
    } while (0)

static void pairs(void)
{
    PAIR(int, MPI_2INT);
    PAIR(float, MPI_FLOAT_INT);
    PAIR(double, MPI_DOUBLE_INT);
    PAIR(long, MPI_LONG_INT);
    PAIR(short, MPI_SHORT_INT);
    PAIR(long double, MPI_LONG_DOUBLE_INT);
}

/* x -> ax + b, composed: associative, not commutative. */
typedef struct {
    unsigned a, b;
} affine_t;

static affine_t after(affine_t first, affine_t then)
{
    return (affine_t){first.a * then.a, first.b * then.a + then.b};
}

static void compose(void *left, void *right, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; ++i) {
        ((affine_t *) right)[i] = after(((affine_t *) left)[i], ((affine_t *) right)[i]);
    }
}

static affine_t of_rank(int rank, int i) { return (affine_t){3 + 2 * rank + i, 7 * rank + i + 1}; }

static affine_t of_ranks(int from, int to, int i)
{
    affine_t result = of_rank(from, i);
    for (int r = from + 1; r < to; ++r) {
        result = after(result, of_rank(r, i));
    }
    return result;
}

static int same(affine_t x, affine_t y) { return x.a == y.a && x.b == y.b; }

static void ordered(int count)
{
    MPI_Datatype type;
    MPI_Op op;
    affine_t *in = malloc(sizeof(*in) * count * ranks), *out = malloc(sizeof(*out) * count * ranks);
    int right, *counts = malloc(sizeof(int) * ranks);
    MPI_Type_contiguous(2, MPI_UNSIGNED, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &op);
    for (int i = 0; i < count * ranks; ++i) {
        in[i] = of_rank(me, i);
    }
    MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < count; ++i) {
        right &= same(out[i], of_ranks(0, ranks, i));
    }
    check("allreduce in rank order", right);
    for (int root = 0; root < ranks; ++root) {
        MPI_Reduce(in, out, count, type, op, root, MPI_COMM_WORLD);
        right = 1;
        for (int i = 0; i < count; ++i) {
            right &= me != root || same(out[i], of_ranks(0, ranks, i));
        }
        check("reduce in rank order, any root", right);
    }
    MPI_Scan(in, out, count, type, op, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < count; ++i) {
        right &= same(out[i], of_ranks(0, me + 1, i));
    }
    check("scan in rank order", right);
    MPI_Exscan(in, out, count, type, op, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < count; ++i) {
        right &= 0 == me || same(out[i], of_ranks(0, me, i));
    }
    check("exscan in rank order", right);
    MPI_Reduce_scatter_block(in, out, count, type, op, MPI_COMM_WORLD);
    right = 1;
    for (int i = 0; i < count; ++i) {
        right &= same(out[i], of_ranks(0, ranks, me * count + i));
    }
    check("reduce_scatter_block in rank order", right);
    int start = 0, total = 0;
    for (int r = 0; r < ranks; ++r) {
        counts[r] = r % 2 ? 0 : r < ranks - 1 ? 1 : count;
        start += r < me ? counts[r] : 0;
        total += counts[r];
    }
    MPI_Reduce_scatter(in, out, counts, type, op, MPI_COMM_WORLD);
    right = total <= count * ranks;
    for (int i = 0; i < counts[me]; ++i) {
        right &= same(out[i], of_ranks(0, ranks, start + i));
    }
    check("reduce_scatter in rank order", right);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    free(in);
    free(out);
    free(counts);
}

/* A user function on a type with a gap, whose elements also lie below their address. */
typedef struct {
    char tag;
    int value; /* three bytes of gap before it */
} gappy_t;

static void add_gappy(void *left, void *right, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; ++i) {
        ((gappy_t *) right)[i].value += ((gappy_t *) left)[i].value;
        ((gappy_t *) right)[i].tag = ((gappy_t *) left)[i].tag;
    }
}

static void gaps(void)
{
    MPI_Datatype type;
    MPI_Op op;
    gappy_t in[9], out[9];
    int lengths[2] = {1, 1}, right = 1;
    MPI_Aint places[2] = {0, offsetof(gappy_t, value)};
    MPI_Datatype types[2] = {MPI_CHAR, MPI_INT};
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_gappy, 1, &op);
    memset(out, 0x5a, sizeof(out));
    for (int i = 0; i < 9; ++i) {
        in[i] = (gappy_t){'x', me + i};
    }
    MPI_Allreduce(in, out, 9, type, op, MPI_COMM_WORLD);
    for (int i = 0; i < 9; ++i) {
        right &= out[i].value == ranks * (ranks - 1) / 2 + ranks * i && 'x' == out[i].tag;
        right &= 0x5a == ((unsigned char *) &out[i])[1]; /* the gap is left alone */
    }
    check("user function on a type with gaps", right);
    MPI_Request request;
    memset(out, 0, sizeof(out));
    MPI_Iallreduce(in, out, 9, type, op, MPI_COMM_WORLD, &request);
    MPI_Op_free(&op);
    MPI_Type_free(&type); /* both live on until the operation ends */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("type and operation freed while in use", out[8].value == ranks * (ranks - 1) / 2 + ranks * 8);
}

static void local(void)
{
    int left[3] = {1, 2, 3}, right[3] = {10, 20, 30};
    MPI_Reduce_local(left, right, 3, MPI_INT, MPI_SUM);
    check("reduce_local", 11 == right[0] && 22 == right[1] && 33 == right[2]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    predefined();
    long_double();
    pairs();
    ordered(1);
    ordered(1000);
    ordered(40000);
    gaps();
    local();
    return end();
}
