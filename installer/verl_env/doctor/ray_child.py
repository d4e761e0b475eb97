"""Run by an environment's Python, which has Ray: join a cluster as a driver, look at each node, print lines of JSON.

Its tasks take no CPU and write nothing. Nothing of verl_env is imported: this is another environment.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path, PurePosixPath
from typing import Any

_SECONDS = 25  # for all nodes together: a worker process starts on each


def say(**values: Any) -> None:
    """Print values at once."""
    print(json.dumps(values), flush=True)


def look() -> dict[str, Any]:
    """Return what one node is, from inside a worker."""
    import os
    import platform

    import ray  # type: ignore[import-not-found]

    room = os.statvfs("/dev/shm")  # noqa: S108 - shared memory, not a temporary file
    return {
        "ray": ray.__version__,
        "python": platform.python_version(),
        "shm": room.f_blocks * room.f_frsize,
        "limit": memory_limit(),
    }


def memory_limit() -> int | None:
    """Return the least that a cgroup of this process allows, its own and those above; None where none says."""
    limits = []
    for line in read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        base, name = ("", "memory.max") if number == "0" else ("/memory", "memory.limit_in_bytes")
        groups = PurePosixPath(path)
        limits += [read(f"/sys/fs/cgroup{base}{group}/{name}") for group in (groups, *groups.parents)]
    return min((int(it) for it in limits if it.isdigit()), default=None)


def read(path: str) -> str:
    """Return a small file's text; nothing when it is not there."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def cluster_versions(address: str) -> dict[str, Any]:
    """Return Ray's and Python's version as the head noted them when it started; no need to join for that."""
    import ray

    try:
        from ray._common.usage import usage_lib  # type: ignore[import-not-found]
    except ImportError:  # Ray before 2.49
        from ray._private.usage import usage_lib  # type: ignore[import-not-found]
    from ray._raylet import GcsClient  # type: ignore[import-not-found]

    known = usage_lib.get_cluster_metadata(GcsClient(address=address)) or {}
    return {"ray": known.get("ray_version"), "python": known.get("python_version"), "own_ray": ray.__version__}


def main(address: str) -> None:
    """Ask the head, then every node."""
    say(own_python=platform.python_version())
    try:
        say(head=cluster_versions(address))
    except Exception as err:  # noqa: BLE001 - an internal of Ray's that another release may not have
        say(head_error=f"{type(err).__name__}: {err}")
    import ray
    from ray.util.scheduling_strategies import (  # type: ignore[import-not-found]
        NodeAffinitySchedulingStrategy,
    )

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except Exception as err:  # noqa: BLE001 - whatever it was, it is what the user would meet
        say(error=f"{type(err).__name__}: {err}")
        return
    nodes = [node for node in ray.nodes() if node["Alive"]]
    task = ray.remote(num_cpus=0)(look)
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    ray.wait(asked, num_returns=len(asked), timeout=_SECONDS)
    answers = []
    for node, reference in zip(nodes, asked):  # noqa: B905 - Pythons before 3.10 run this too
        known = {
            "address": node["NodeManagerAddress"],
            "resources": node["Resources"],
            "store": node.get("ObjectStoreSocketName"),
        }
        try:
            known["said"] = ray.get(reference, timeout=0.1)
        except Exception as err:  # noqa: BLE001
            known["error"] = f"{type(err).__name__}: {err}"
        answers.append(known)
    say(nodes=answers)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
