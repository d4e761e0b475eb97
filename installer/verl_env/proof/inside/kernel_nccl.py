"""Collectives over all visible GPUs, one process a GPU; over gloo and two processes where there is none."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

from expecting import expect
from kernel_torch import devices

WARM, TIMED = 5, 20


def collectives(on):
    """All-reduce, all-gather and reduce-scatter with known sums, then the bandwidth of a large all-reduce."""
    import torch.multiprocessing as mp

    places, kinds = devices(on)
    world = len(places) if on == "cuda" else 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, args=(world, on, free_port(), folder), nprocs=world, join=True)
        said = json.loads((Path(folder) / "rank0.json").read_text())
    links = f"{said['busbw']:.1f} GB/s busbw for {said['mib']} MiB" if world > 1 else "one GPU, so no bandwidth"
    return f"{said['backend']} over {kinds if on == 'cuda' else '2 processes'}: right sums, {links}"


def free_port():
    """Return a port that is free now, on the loopback."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_rank(rank, world, on, port, folder):
    """Do one rank's part; rank 0 writes down what was seen."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    backend = "nccl" if on == "cuda" else "gloo"
    place = torch.device("cuda", rank) if on == "cuda" else torch.device("cpu")
    if on == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group(backend, rank=rank, world_size=world)
    check_sums(rank, world, place)
    megabytes = 512 if on == "cuda" else 4
    busbw = measure(world, place, megabytes << 20)
    if rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version())) if on == "cuda" else torch.__version__
        said = {"backend": f"{backend} {version}", "busbw": busbw, "mib": megabytes}
        (Path(folder) / "rank0.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


def check_sums(rank, world, place):
    """Compare what each collective leaves with what it must leave, element by element; whole numbers are exact."""
    import torch
    import torch.distributed as dist

    count = 1 << 20
    base = torch.arange(count, device=place) % 64
    total = sum(range(1, world + 1))
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        data = ((base if dtype != torch.bfloat16 else base % 4) * (rank + 1)).to(dtype)
        dist.all_reduce(data)
        wanted = ((base if dtype != torch.bfloat16 else base % 4) * total).to(dtype)
        expect(0, int((data != wanted).sum()), f"wrong elements of an all-reduce of {dtype} on rank {rank}")
    parts = [torch.empty(count, device=place) for _ in range(world)]
    dist.all_gather(parts, torch.full((count,), float(rank), device=place))
    gathered = [float(part.unique().item()) for part in parts]
    expect([float(it) for it in range(world)], gathered, f"all-gather on rank {rank}")
    if place.type == "cuda":  # gloo had none until torch 2.9
        out = torch.empty(count, device=place)
        dist.reduce_scatter(out, [torch.full((count,), float(it + rank), device=place) for it in range(world)])
        expect(float(sum(rank + it for it in range(world))), float(out.unique().item()), f"reduce-scatter, rank {rank}")


def measure(world, place, size):
    """Return the bus bandwidth of an all-reduce in GB/s, as nccl-tests counts it: 2 (n-1)/n bytes a byte."""
    import time

    import torch
    import torch.distributed as dist

    data = torch.zeros(size // 4, device=place)
    for _ in range(WARM):
        dist.all_reduce(data)
    settle(place)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(TIMED):
        dist.all_reduce(data)
    settle(place)
    seconds = (time.perf_counter() - started) / TIMED
    return size / seconds / 1e9 * 2 * (world - 1) / world


def settle(place):
    """Wait until a GPU has done what it was given."""
    import torch

    if place.type == "cuda":
        torch.cuda.synchronize(place)
