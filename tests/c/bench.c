/* Times of the collectives over message sizes: bench [most bytes] [collective,...]. One line of JSON per point. Nonblocking
 * forms are asked for as iallreduce, persistent ones as allreduce_init; without a list, these two of them are measured. */
#include "cases.h"

static int wanted(const char *list, enum kind kind, enum form form)
{
    char name[64];
    size_t len = (size_t) snprintf(name, sizeof(name), "%s%s%s", before[form], names[kind], after[form]);
    if (NULL == list || '\0' == *list) {
        return BLOCKING == form || ALLREDUCE == kind;
    }
    for (const char *at = list; NULL != at; at = strchr(at, ',')) {
        at += ',' == *at;
        if (0 == strncmp(at, name, len) && (',' == at[len] || '\0' == at[len])) {
            return 1;
        }
    }
    return 0;
}

/* All sizes of one collective in one form. Whether all results were right. */
static int sizes(enum kind kind, enum form form, size_t most)
{
    int right = 1;
    for (size_t size = 8; size <= most; size *= 8) {
        right &= measure(kind, form, size, size <= (64 << 10) ? 1000 : size <= (1 << 20) ? 100 : 20);
        if (BARRIER == kind) {
            break;
        }
    }
    return right;
}

int main(int argc, char **argv)
{
    size_t most = argc > 1 ? strtoull(argv[1], NULL, 0) : 4 << 20;
    const char *list = argc > 2 ? argv[2] : NULL;
    int right = 1;
    start(&argc, &argv, most);
    for (int form = 0; form < FORMS; ++form) {
        for (int kind = 0; kind < KINDS; ++kind) {
            right &= !wanted(list, kind, form) || sizes(kind, form, most);
        }
    }
    finish();
    return right ? 0 : 1;
}
