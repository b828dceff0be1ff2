"""PyTorch's collectives on this host's GPUs, ranks on them in turn: right results and times.

    nccl.py LABEL [RANKS] [--sizes BYTES,...] [--json FILE]      with LD_PRELOAD=.../libnccl.so.2, or without

With the label "stock" or "delegated", and more ranks than GPUs, each rank has its own NCCL_HOSTID, without which stock NCCL refuses two ranks on one
GPU. Prints a line per collective and size: label, collective, bytes, median microseconds of the slower rank, ok or WRONG. FILE gets a
line of JSON for each as well. The exit status is 1 where a result is wrong."""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = "8,8388608,134217728"


def cases(rank, n, bytes, device):
    """Name, call, check."""
    count = max(n, bytes // 4 // n * n)
    per = count // n
    x = torch.empty(count, device=device)
    out = torch.empty(count, device=device)
    total = n * (n + 1) / 2

    def blocks():
        return all(bool((out[i * per:(i + 1) * per] == i + 1).all()) for i in range(n))

    # Each is called on x = rank + 1 for the check, and with whatever is there for the time.
    yield "all_reduce", x, lambda: dist.all_reduce(x), lambda: bool((x == total).all())
    yield "all_reduce avg", x, lambda: dist.all_reduce(x, op=dist.ReduceOp.AVG), lambda: bool((x == total / n).all())
    yield "all_gather", x, lambda: dist.all_gather_into_tensor(out, x[:per]), blocks
    yield "reduce_scatter", x, lambda: dist.reduce_scatter_tensor(out[:per], x), lambda: bool((out[:per] == total).all())
    yield "broadcast", x, lambda: dist.broadcast(x, 0), lambda: bool((x == 1).all())
    yield "all_to_all", x, lambda: dist.all_to_all_single(out, x), blocks
    if n == 2:
        def exchange():
            peer = 1 - rank
            work = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, out, peer)])
            for part in work:
                part.wait()
        yield "send_recv", x, exchange, lambda: bool((out == 2 - rank).all())


def share_gpus(rank, n, label):
    """This rank's device."""
    devices = torch.cuda.device_count()
    if label in ("stock", "delegated") and n > devices:
        os.environ["NCCL_HOSTID"] = f"host{rank}"
    torch.cuda.set_device(rank % devices)
    return torch.device("cuda", rank % devices)


def measured(call, bytes):
    """The median time of a call in seconds."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    times = []
    for _ in range(20 if bytes < 1 << 20 else 7):
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def rank_main(rank, port, asked):
    n, label = asked.ranks, asked.label
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = share_gpus(rank, n, label)
    dist.init_process_group("nccl", rank=rank, world_size=n)
    if rank == 0:
        print(f"{label}: PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}", flush=True)
    well = True
    for bytes in map(int, asked.sizes.split(",")):
        for name, x, call, check in cases(rank, n, bytes, device):
            x.fill_(rank + 1)
            call()
            torch.cuda.synchronize()
            right = torch.tensor([float(check())], device=device)
            dist.all_reduce(right)
            x.zero_()
            slowest = torch.tensor([measured(call, bytes)], device=device, dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            us, ok = slowest.item() * 1e6, right.item() == n
            well &= ok
            if rank == 0:
                print(f"{label:9} n={n} {name:15} {bytes:>12} B {us:>10.1f} us {'ok' if ok else 'WRONG'}", flush=True)
                if asked.json:
                    with open(asked.json, "a") as file:
                        print(json.dumps(dict(label=label, ranks=n, case=name, bytes=bytes, us=us, ok=ok)), file=file)
    dist.destroy_process_group()
    if not well:
        sys.exit(1)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("label")
    options.add_argument("ranks", type=int, nargs="?", default=2)
    options.add_argument("--sizes", default=SIZES)
    options.add_argument("--json")
    asked = options.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank_main, args=(port, asked), nprocs=asked.ranks)
