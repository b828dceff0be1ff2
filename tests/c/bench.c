/* Times of the collectives over message sizes: bench [most bytes] [collective,...]. One line of JSON per point. */
#include "cases.h"

static int wanted(const char *list, const char *name)
{
    size_t len = strlen(name);
    if (NULL == list || '\0' == *list) {
        return 1;
    }
    for (const char *at = list; NULL != at; at = strchr(at, ',')) {
        at += ',' == *at;
        if (0 == strncmp(at, name, len) && (',' == at[len] || '\0' == at[len])) {
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    size_t most = argc > 1 ? strtoull(argv[1], NULL, 0) : 4 << 20;
    const char *list = argc > 2 ? argv[2] : NULL;
    int right = 1;
    start(&argc, &argv, most);
    for (int kind = 0; kind < KINDS; ++kind) {
#ifndef OPEN_MPI
        if (ALLREDUCE_INIT == kind) {
            continue; /* persistent collectives have no common name yet */
        }
#endif
        if (!wanted(list, names[kind])) {
            continue;
        }
        for (size_t bytes = 8; bytes <= most; bytes *= 8) {
            right &= measure(kind, bytes, bytes <= (64 << 10) ? 1000 : bytes <= (1 << 20) ? 100 : 20);
            if (BARRIER == kind) {
                break;
            }
        }
    }
    finish();
    return right ? 0 : 1;
}
