"""The memory and cores that a build may use: the machine's, or a container's where that has less."""

from __future__ import annotations

import os

import pytest

from verl_env.builds.memory import Memory, cores, read_memory
from verl_env.node.host import Host

MEMINFO = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  800 kB\n"


def lay(root, files):
    """Write files below a root, as a kernel has them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(root=root)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, Memory(total=1000 * 1024, available=800 * 1024), id="no cgroup"),
        pytest.param(
            {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"},
            Memory(total=1000 * 1024, available=800 * 1024),
            id="v2 without a limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.max": "500000\n",
                "sys/fs/cgroup/job/memory.current": "450000\n",
                "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 150000\n",
            },
            Memory(total=500000, available=200000),
            id="v2, with cache that can go",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "400000\n",
                "sys/fs/cgroup/memory.current": "500000\n",
            },
            Memory(total=400000, available=0),
            id="a container's root, over its limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:memory:/slurm\n",
                "sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "300000\n",
                "sys/fs/cgroup/memory/slurm/memory.usage_in_bytes": "100000\n",
                "sys/fs/cgroup/memory/slurm/memory.stat": "total_inactive_file 50000\n",
            },
            Memory(total=300000, available=250000),
            id="v1",
        ),
    ],
)
def test_memory(tmp_path, files, expected):
    """The smallest of the machine's and the cgroups' counts."""
    assert expected == read_memory(lay(tmp_path, {"proc/meminfo": MEMINFO, **files}))


@pytest.mark.parametrize(
    ("quota", "most"), [("max 100000\n", None), ("150000 100000\n", 1), ("50000 100000\n", 1)], ids=str
)
def test_cores(tmp_path, quota, most):
    """A quota counts where it is less than the cores that are allowed."""
    here = len(os.sched_getaffinity(0))
    assert min(here, most or here) == cores(lay(tmp_path, {"sys/fs/cgroup/cpu.max": quota}))
