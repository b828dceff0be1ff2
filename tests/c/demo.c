/* Every collective on real buffers, checked and timed: demo [rounds]. One line of JSON each. Fails when a result is
 * wrong. */
#include "cases.h"

int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 8 << 10, 1 << 20};
    int right = 1, most = argc > 1 ? atoi(argv[1]) : 400;
    start(&argc, &argv, 1 << 20);
    for (int i = 0; i < KINDS + 2; ++i) {
        /* All blocking collectives, and one of each other form. */
        int form = i < KINDS ? BLOCKING : i == KINDS ? NONBLOCKING : PERSISTENT, kind = i < KINDS ? i : ALLREDUCE;
        for (int s = 0; s < 3; ++s) {
            int rounds = sizes[s] > (64 << 10) && most > 60 ? 60 : most;
            right &= measure(kind, form, sizes[s], rounds);
            if (BARRIER == kind) {
                break;
            }
        }
    }
    finish();
    return right ? 0 : 1;
}
