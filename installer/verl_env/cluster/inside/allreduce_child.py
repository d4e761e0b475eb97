"""Run by the Python of an environment on two nodes at once: all-reduce between them, with a right answer to compare.

    python allreduce_child.py PLAN NODE    PLAN is JSON: {"ranks": {NODE: {"rank": 0, "address": ..., "port": ...}}}

NCCL where there is a GPU, else gloo. What was seen goes to stdout as one line of JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import resource
import socket
import struct
import sys
import time
from datetime import timedelta
from typing import Any

_INIT_SECONDS = 90
_WARM, _TIMED = 3, 10
_BYTES = {"nccl": 256 * 1024 * 1024, "gloo": 32 * 1024 * 1024}
_SIOCGIFADDR = 0x8915  # netdevice(7)
_NET = ("NET/", "Using network", "NCCL version")


def main(plan: str, node: str) -> dict[str, Any]:
    """Meet the other node, reduce, and say how fast and over what."""
    import torch
    import torch.distributed as dist

    with open(plan, encoding="utf-8") as text:
        mine = json.load(text)["ranks"][node]
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    interface = interface_to(mine["address"])
    if backend == "gloo" and interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    log = os.path.join(os.getcwd(), "nccl.log")
    os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_DEBUG_FILE": log})
    where = f"tcp://{mine['address']}:{mine['port']}"
    limit = timedelta(seconds=_INIT_SECONDS)
    dist.init_process_group(backend, init_method=where, world_size=2, rank=mine["rank"], timeout=limit)
    device = "cuda" if backend == "nccl" else "cpu"
    rate, right = reduce(torch, dist, device, _BYTES[backend], mine["rank"])
    dist.destroy_process_group()
    return {
        "backend": backend,
        "right": right,
        "bytes_per_second": rate,
        "interface": interface,
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "nccl": nccl_lines(),
    }


def reduce(torch: Any, dist: Any, device: str, size: int, rank: int) -> tuple[float, bool]:
    """Return the bus bandwidth in bytes a second, and whether the sum is right.

    Of n nodes it is 2 (n - 1) / n of the bytes by the time, as nccl-tests count: for two, the bytes.
    """
    values = torch.full((size // 4,), float(rank + 1), dtype=torch.float32, device=device)
    dist.all_reduce(values)
    right = bool((values == 1.0 + 2.0).all())
    for _ in range(_WARM):
        dist.all_reduce(values)
    settle = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    settle()
    started = time.monotonic()
    for _ in range(_TIMED):
        dist.all_reduce(values)
    settle()
    return size * _TIMED / (time.monotonic() - started), right


def interface_to(address: str) -> str:
    """Return the interface by which an address is reached: that which has the address such a packet would come from."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        mine = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == mine:
                    return name
    return ""


def nccl_lines() -> list[str]:
    """Return what NCCL said of its networks."""
    found: list[str] = []
    for path in glob.glob("nccl.log*"):
        with open(path, encoding="utf-8", errors="replace") as text:
            found += [line.strip()[:300] for line in text if any(word in line for word in _NET)]
    return found[:60]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])), flush=True)
