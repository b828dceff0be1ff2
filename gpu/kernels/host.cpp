// The kernels of reduce.h as functions of the host, for emulated devices and tests:
//
//     void hetccl_reduce_sum_f32(void **args, const unsigned grid[3], const unsigned block[3]);
//
// args[0] points to a HetcclReduceArgs. Every thread of the grid runs, one after the other, and does what it would do on
// a device; as each reads all its inputs before it writes, and writes where no other reads, the order does not matter.
#include "hold.h"
#include "reduce.h"

namespace {

template <template <class> class Op, class T, class Lane>
void launch(const HetcclReduceArgs &args, const unsigned grid[3], const unsigned block[3]) {
    const hetccl::Plan plan = hetccl::plan<T>(args);
    for (unsigned b = 0; b < grid[0]; b++) {
        for (unsigned t = 0; t < block[0]; t++) {
            hetccl::reduce<Op, T, Lane>(args, plan, {b, grid[0], t, block[0]});
        }
    }
}

} // namespace

#define HETCCL_EXPORT(name, Op, T, Lane)                                                                               \
    extern "C" __attribute__((visibility("default"))) void name(void **args, const unsigned grid[3],                   \
                                                                const unsigned block[3]) {                             \
        launch<hetccl::Op, hetccl::T, hetccl::Lane>(*static_cast<const HetcclReduceArgs *>(args[0]), grid, block);     \
    }
HETCCL_KERNELS(HETCCL_EXPORT)
