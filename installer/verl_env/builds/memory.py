"""Memory and cores as this process may use them. An edge: reads /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.node.host import Host

# cgroup v2's files, then v1's: the limit, what is used, and what of that is cache that can go.
_CGROUPS = (
    ("/sys/fs/cgroup{path}/memory.max", "/sys/fs/cgroup{path}/memory.current", "/sys/fs/cgroup{path}/memory.stat"),
    (
        "/sys/fs/cgroup/memory{path}/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory{path}/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory{path}/memory.stat",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that this process may use in all, and those that are free now."""

    total: int
    available: int


def read_memory(host: Host) -> Memory:
    """Return the machine's memory, or a cgroup's where that allows less."""
    values = {}
    for line in (host.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) * 1024
    found = [(values["MemTotal"], values.get("MemAvailable", values["MemFree"])), *_groups(host)]
    return Memory(total=min(total for total, _ in found), available=min(free for _, free in found))


def _groups(host: Host) -> Iterator[tuple[int, int]]:
    """Yield (limit, free) of each cgroup of this process that has a limit; a container sees its own as the root."""
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        number, _, path = line.split(":", 2)
        for place in dict.fromkeys((path.rstrip("/"), "")):
            limit, used, stat = (host.read(it.format(path=place)) for it in _CGROUPS[number != "0"])
            if limit and used and limit.strip().isdecimal():
                reclaimable = sum(
                    int(words[1])
                    for words in map(str.split, (stat or "").splitlines())
                    if words[0] in ("inactive_file", "total_inactive_file")
                )
                yield int(limit), max(0, int(limit) - int(used) + reclaimable)


def cores(host: Host) -> int:
    """Return how many cores this process may use: its affinity, and a cgroup's quota where that is less."""
    count = len(os.sched_getaffinity(0))
    quota, _, period = (host.read("/sys/fs/cgroup/cpu.max") or "max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        count = min(count, max(1, int(quota) // int(period)))
    return count
