"""Collectives of CuPy and of JAX on this host's GPUs, ranks on them in turn: every one that they have, right results.

    nccl_arrays.py LABEL [RANKS [cupy|jax...]]      with LD_PRELOAD=.../libnccl.so.2, or without

Prints a line per library: label, ranks, library, ok or what went wrong."""
import multiprocessing
import os
import subprocess
import sys

from ranks import run


def devices():
    """How many GPUs this host has."""
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


def cupy(rank, n, port):
    """cupyx.distributed: cupyx/distributed/_nccl_comm.py."""
    import cupy as cp
    from cupy.cuda import nccl
    from cupyx.distributed import init_process_group
    cp.cuda.Device(rank % devices()).use()
    multiprocessing.set_start_method("fork", force=True)  # CuPy's server of addresses can't be pickled
    comm = init_process_group(n, rank, host="127.0.0.1", port=port)
    total, per, checks = n * (n + 1) // 2, 1000, 0

    def same(x, wanted):
        nonlocal checks
        assert bool((x == wanted).all()), (x.ravel()[:4], wanted)
        checks += 1

    for dtype in "bBiIlLqQefdFD":
        x, out = cp.full(per, rank + 1, dtype), cp.zeros(per, dtype)
        comm.all_reduce(x, out)
        same(out, total)
        if dtype not in "FD":
            for op, wanted in [("max", n), ("min", 1)]:
                comm.all_reduce(x, out, op)
                same(out, wanted)
        for root in range(n):
            x = cp.full(per, rank + 1, dtype)
            comm.broadcast(x, root)
            same(x, root + 1)
            x, out = cp.full(per, rank + 1, dtype), cp.zeros(per, dtype)
            comm.reduce(x, out, root)
            if rank == root:
                same(out, total)
            parts = cp.zeros((n, per), dtype)
            comm.gather(x, parts, root)
            if rank == root:
                same(parts, cp.arange(1, n + 1)[:, None].astype(dtype))
            parts = cp.arange(5, 5 + n)[:, None].astype(dtype) * cp.ones((n, per), dtype)
            comm.scatter(parts, out, root)
            same(out, rank + 5)
        out = cp.zeros((n, per), dtype)
        comm.all_gather(x, out, per)
        same(out, cp.arange(1, n + 1)[:, None].astype(dtype))
        parts, out = cp.full((n, per), rank + 1, dtype), cp.zeros(per, dtype)
        comm.reduce_scatter(parts, out, per)
        same(out, total)
        parts = (10 * rank + cp.arange(n))[:, None].astype(dtype) * cp.ones((n, per), dtype)
        out = cp.zeros((n, per), dtype)
        comm.all_to_all(parts, out)
        same(out, (10 * cp.arange(n) + rank)[:, None].astype(dtype))
        if n == 2:
            out = cp.zeros(per, dtype)
            comm.send_recv(x, out, 1 - rank)
            same(out, 2 - rank)
    comm.barrier()
    return f"CuPy {cp.__version__}, NCCL {nccl.get_version()}: {checks} checks held"


def jax(rank, n, port):
    """shard_map over one device of each process, every collective of jax.lax, and a training step cut by the compiler."""
    # Ranks share the GPU: none may take all of its memory.
    os.environ.update(XLA_PYTHON_CLIENT_PREALLOCATE="false", JAX_PLATFORMS="cuda")
    import jax as j
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    j.distributed.initialize(f"127.0.0.1:{port}", n, rank, local_device_ids=[rank % devices()])
    mesh = j.sharding.Mesh(np.array(j.devices()), ("i",))
    assert mesh.size == n, j.devices()
    total, per, checks = n * (n + 1) // 2, 1000, 0
    cut = NamedSharding(mesh, P("i"))

    def across(mine):
        """An array whose part on this rank is `mine`."""
        shape = (n * mine.shape[0], *mine.shape[1:])
        return j.make_array_from_single_device_arrays(shape, cut, [j.device_put(mine, j.local_devices()[0])])

    def part(f, mine):
        out = j.jit(j.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(across(mine))
        return np.asarray(out.addressable_shards[0].data)

    def same(x, wanted):
        nonlocal checks
        assert (x == wanted).all(), (x.ravel()[:4], wanted)
        checks += 1

    for dtype in [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32, jnp.int8, jnp.uint8]:
        mine = np.full(per * n, rank + 1).astype(dtype)
        same(part(lambda x: j.lax.psum(x, "i"), mine), total)
        same(part(lambda x: j.lax.pmax(x, "i"), mine), n)
        same(part(lambda x: j.lax.pmin(x, "i"), mine), 1)
        same(part(lambda x: j.lax.all_gather(x, "i"), mine), np.arange(1, n + 1)[:, None].astype(dtype))
        same(part(lambda x: j.lax.psum_scatter(x, "i", tiled=True), mine), total)
        mine = np.repeat(10 * rank + np.arange(n), per).astype(dtype)
        same(part(lambda x: j.lax.all_to_all(x, "i", 0, 0, tiled=True), mine), np.repeat(10 * np.arange(n) + rank, per).astype(dtype))
        around = [(i, (i + 1) % n) for i in range(n)]
        same(part(lambda x: j.lax.ppermute(x, "i", around), np.full(per, rank + 1).astype(dtype)), (rank - 1) % n + 1)
    same(part(lambda x: j.lax.pmean(x, "i"), np.full(1 << 20, rank + 1.0, np.float32)), total / n)

    # Least squares, the samples cut over the ranks: the compiler makes the gradient's allreduce.
    made = np.random.default_rng(1)
    x, w = made.standard_normal((64 * n, 128), np.float32), made.standard_normal((128, 16), np.float32)
    y = x @ w
    whole = NamedSharding(mesh, P())
    mine = slice(64 * rank, 64 * (rank + 1))

    def step(w, x, y):
        loss, slope = j.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return loss, w - 2.0 * slope

    def losses(w, x, y, **how):
        run = j.jit(step, **how)
        seen = []
        for _ in range(5):
            loss, w = run(w, x, y)
            seen.append(float(loss))
        return seen

    with j.default_matmul_precision("highest"):
        start = np.zeros_like(w)
        shared = j.make_array_from_callback(start.shape, whole, lambda i: start[i])
        ours = losses(shared, across(x[mine]), across(y[mine]), out_shardings=(whole, whole))
        wanted = losses(start, x, y)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, wanted))
    assert worst < 1e-4, (ours, wanted)
    j.distributed.shutdown()  # all wait for each other
    return f"JAX {j.__version__}: {checks} checks held; losses as alone to {worst:.1e}"


CASES = {case.__name__: case for case in [cupy, jax]}


def rank_main(rank, n, port, label, name):
    if label == "stock":
        os.environ["NCCL_HOSTID"] = f"host{rank}"
    return CASES[name](rank, n, port)


if __name__ == "__main__":
    label, ranks = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    names = sys.argv[3:] or list(CASES)
    sys.exit(0 if all([run(rank_main, label, ranks, name) for name in names]) else 1)
