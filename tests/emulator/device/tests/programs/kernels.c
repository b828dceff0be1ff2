/* Kernels for the host, as an emulator takes them. */
#include <stdint.h>

const unsigned add_parameter_bytes[] = {8, 8, 8, 0};

/* void add(float *into, const float *from, uint64_t count) */
void add(void **arguments, const unsigned grid[3], const unsigned block[3]) {
    float *into = *(float **)arguments[0];
    const float *from = *(const float **)arguments[1];
    uint64_t count = *(uint64_t *)arguments[2], threads = (uint64_t)grid[0] * block[0];
    for (uint64_t thread = 0; thread < threads; thread++)
        for (uint64_t i = thread; i < count; i += threads) into[i] += from[i];
}

struct many { uint32_t *into; uint32_t values[100]; };

/* void store(struct many) : without sizes */
void store(void **arguments, const unsigned grid[3], const unsigned block[3]) {
    (void)grid, (void)block;
    struct many *many = arguments[0];
    for (int i = 0; i < 100; i++) many->into[i] = many->values[i];
}
