"""PyTorch programs on this host's GPUs, ranks on them in turn, as people write them: every collective of torch.distributed, training in four ways beside the
same training by one rank, and what is to be refused or to fail in words.

    nccl_train.py LABEL [RANKS [CASE...]]      with LD_PRELOAD=.../libnccl.so.2, or without

Each case has processes of its own and 90 seconds. Prints a line per case: label, ranks, case, ok or what went wrong. The label
"stock" gives each rank its own NCCL_HOSTID where there are more ranks than GPUs, as nccl.py does. With HETCCL_RESULTS=FILE the
lines go there as JSON as well."""
import os
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from nccl import share_gpus
from ranks import run

WORDS, LENGTH, BATCH, STEPS = 512, 64, 8, 6
# Blocks, width, heads: 3.4 million parameters, and the 85.8 million that GPT-2's smallest has in its blocks.
SMALL, GPT2 = (4, 256, 4), (12, 768, 12)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, blocks, width, heads):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model(device, size=SMALL):
    torch.manual_seed(1)
    return Transformer(*size).to(device)


def batch(step, n, device):
    """Tokens of all ranks together."""
    made = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, WORDS, (n * BATCH, LENGTH + 1), generator=made).to(device)


def loss_of(net, tokens):
    out = net(tokens[:, :-1])
    return F.cross_entropy(out.reshape(-1, WORDS), tokens[:, 1:].reshape(-1))


def alone(n, device, size=SMALL):
    """Losses of one rank that has all the data."""
    net = model(device, size)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(net, batch(step, n, device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(losses, wanted):
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted))
    assert worst < 2e-4, f"losses {losses}, alone {wanted}"
    return f"losses as alone to {worst:.1e}"


def train(net, rank, n, device, synchronized=True):
    """Losses over all ranks, and the median step's milliseconds."""
    # One by one: the update of all at once takes no tensors and sharded ones together, which tensor parallel has.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=synchronized)
    losses, times = [], []
    for step in range(STEPS):
        mine = batch(step, n, device)
        mine = mine[rank * BATCH:(rank + 1) * BATCH] if synchronized else mine
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(net, mine)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
        mean = loss.detach().clone()
        if synchronized:
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses, statistics.median(times[1:]) * 1e3


def collectives(rank, n, device):
    """All of torch.distributed's, also asynchronous and coalesced."""
    def full(value, count=1000, dtype=torch.float32):
        return torch.full((count,), value, device=device, dtype=dtype)

    def same(x, value):
        assert bool((x == value).all()), (x[:4], value)

    total = n * (n + 1) // 2
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8, torch.uint8]
    for dtype in kinds:
        for op, wanted in [(dist.ReduceOp.SUM, total), (dist.ReduceOp.MAX, n), (dist.ReduceOp.MIN, 1)]:
            x = full(rank + 1, dtype=dtype)
            dist.all_reduce(x, op=op)
            same(x, wanted)
    x = full(rank + 1.0)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0))
    same(x, 2 * total)
    for root in range(n):
        x = full(rank + 1.0)
        dist.broadcast(x, root)
        same(x, root + 1)
        x = full(rank + 1.0)
        dist.reduce(x, root)
        if rank == root:
            same(x, total)
        parts = [full(0.0) for _ in range(n)] if rank == root else None
        dist.gather(full(rank + 1.0), parts, dst=root)
        for i, part in enumerate(parts or []):
            same(part, i + 1)
        x = full(0.0)
        dist.scatter(x, [full(i + 5.0) for i in range(n)] if rank == root else None, src=root)
        same(x, rank + 5)
    parts = [full(0.0) for _ in range(n)]
    dist.all_gather(parts, full(rank + 1.0))
    for i, part in enumerate(parts):
        same(part, i + 1)
    x = full(0.0)
    dist.reduce_scatter(x, [full(i + 1.0) for i in range(n)])
    same(x, n * (rank + 1))
    parts = [full(0.0) for _ in range(n)]
    dist.all_to_all(parts, [full(10.0 * rank + i) for i in range(n)])
    for i, part in enumerate(parts):
        same(part, 10 * i + rank)
    sizes = [i + 1 for i in range(n)]
    x = torch.full((sum(sizes),), float(rank), device=device)
    out = torch.empty(n * (rank + 1), device=device)
    dist.all_to_all_single(out, x, [rank + 1] * n, sizes)
    same(out.view(n, rank + 1), torch.arange(n, device=device, dtype=torch.float32)[:, None])
    works, tensors = [], [full(rank + 1.0, 100 + i) for i in range(20)]
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
    for work, tensor in zip(works, tensors):
        work.wait()
        same(tensor, total)
    tensors = [full(rank + 1.0, 100 + i) for i in range(8)]
    with dist._coalescing_manager(device=device):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        same(tensor, total)
    if n > 1:
        x, y = full(rank + 1.0), full(0.0)
        if rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(y, 0)
            same(y, 1)
        right, left = (rank + 1) % n, (rank - 1) % n
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]):
            work.wait()
        same(y, left + 1)
        half = dist.new_group(list(range(n // 2 or 1)))
        if rank < (n // 2 or 1):
            x = full(1.0)
            dist.all_reduce(x, group=half)
            same(x, n // 2 or 1)
    dist.barrier()
    return "all right"


def ddp(rank, n, device):
    net = nn.parallel.DistributedDataParallel(model(device), device_ids=[device.index])
    losses, ms = train(net, rank, n, device)
    return f"{close(losses, alone(n, device))}; step {ms:.2f} ms"


def ddp_gpt2(rank, n, device):
    """As large as GPT-2's smallest: 343 MB of gradients a step."""
    net = nn.parallel.DistributedDataParallel(model(device, GPT2), device_ids=[device.index])
    losses, ms = train(net, rank, n, device)
    return f"{close(losses, alone(n, device, GPT2))}; step {ms:.2f} ms"


def fsdp2(rank, n, device):
    from torch.distributed.fsdp import fully_shard
    net = model(device)
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    losses, ms = train(net, rank, n, device)
    return f"{close(losses, alone(n, device))}; step {ms:.2f} ms"


def tensor_parallel(rank, n, device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (n,))
    net = model(device)
    for block in net.blocks:
        parallelize_module(block, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    losses, ms = train(net, rank, n, device, synchronized=False)
    return f"{close(losses, alone(n, device))}; step {ms:.2f} ms"


def pipeline(rank, n, device):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    whole = model(device)
    per = len(whole.blocks) // n

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = whole.embed if rank == 0 else None
            self.blocks = whole.blocks[rank * per:(rank + 1) * per]
            self.head = whole.head if rank == n - 1 else None

        def forward(self, x):
            x = self.embed(x) if self.embed is not None else x
            for block in self.blocks:
                x = block(x)
            return self.head(x) if self.head is not None else x

    net = Stage()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss_fn(out, target):
        return F.cross_entropy(out.reshape(-1, WORDS), target.reshape(-1))

    stage = PipelineStage(net, rank, n, device)
    schedule = ScheduleGPipe(stage, n_microbatches=n, loss_fn=loss_fn)
    losses = []
    for step in range(STEPS):
        tokens = batch(step, n, device)
        optimizer.zero_grad()
        parts = []
        if rank == 0:
            schedule.step(tokens[:, :-1].contiguous())
        elif rank == n - 1:
            schedule.step(target=tokens[:, 1:].contiguous(), losses=parts)
        else:
            schedule.step()
        optimizer.step()
        mean = torch.stack(parts).mean() if parts else torch.zeros((), device=device)
        dist.broadcast(mean, n - 1)
        losses.append(mean.item())
    return close(losses, alone(n, device))


def graph(rank, n, device):
    """A captured all_reduce, replayed."""
    x = torch.ones(1 << 20, device=device)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(x)
    x.fill_(1)
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    assert bool((x == n ** 3).all()), x[:4]
    return "3 replays right"


def symmetric(rank, n, device):
    """Symmetric memory over NCCL's windows: works, or is refused in words."""
    import torch.distributed._symmetric_memory as symmetric_memory
    try:
        symmetric_memory.set_backend("NCCL")
        x = symmetric_memory.empty(1024, device=device)
        symmetric_memory.rendezvous(x, dist.group.WORLD.group_name)
    except (RuntimeError, dist.DistBackendError) as error:
        return "refused: " + " ".join(str(error).split())[:160]
    return "works"


def killed(rank, n, device):
    """Rank 0 is killed in the middle of its peers' all_reduce."""
    x = torch.ones(1 << 20, device=device)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 0:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.perf_counter()
    try:
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        work.wait()
        torch.cuda.synchronize()
    except (RuntimeError, dist.DistBackendError) as error:
        said = " ".join(str(error).split())
        return f"raised after {time.perf_counter() - begun:.1f} s: {said[-200:]}"
    raise AssertionError("no error")


CASES = {case.__name__: case for case in [collectives, ddp, ddp_gpt2, fsdp2, tensor_parallel, pipeline, graph, symmetric, killed]}


def rank_main(rank, n, port, label, name):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.backends.cuda.matmul.allow_tf32 = False
    device = share_gpus(rank, n, label)
    dist.init_process_group("nccl", rank=rank, world_size=n, device_id=device)
    return CASES[name](rank, n, device)


if __name__ == "__main__":
    label, ranks = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    names = sys.argv[3:] or list(CASES)
    sys.exit(0 if all([run(rank_main, label, ranks, name, silent=name == "killed") for name in names]) else 1)
