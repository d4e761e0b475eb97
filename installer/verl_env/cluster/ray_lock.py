"""The part of a lock that a Ray cluster needs before anything else is there: Ray and what it imports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.errors import LockError
from verl_env.lock.locate import base_options
from verl_env.lock.lockfile import sealed

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.lock.lockfile import Lock


def ray_lock(lock: Lock, indexes: Indexes) -> Lock:
    """Return a lock of Ray alone, with the very files of the whole lock; raises LockError when it has no Ray.

    What Ray needs is uv's to say: it resolves Ray under the lock's versions, for the lock's Python.
    """
    ray = next((pin for pin in lock.pins if pin.name == "ray"), None)
    if ray is None:
        raise LockError(
            f"the lock of {lock.table.title} has no Ray", hint="bring it by Slurm: cluster install --on slurm"
        )
    versions = "".join(f"{pin.name}=={pin.version}\n" for pin in lock.pins)
    words = ["--constraints", "constraints.txt", "--python-version", lock.table.python, *base_options(indexes)]
    document = uv.compile_pylock(f"ray=={ray.version}\n", words, {"constraints.txt": versions})
    names = {package["name"] for package in document["packages"]}
    table = replace(
        lock.table,
        row=f"ray-of-{lock.table.row}",
        title=f"Ray {ray.version}, to start a cluster for {lock.table.title}",
        imports=("ray",),
        cuda=None,
        driver=None,
        set={"ray": ray.version},
        exports={},
        attention=None,
        settings=(),
        sources={name: source for name, source in lock.table.sources.items() if name in names},
        build=(),
        download_bytes=sum(pin.size for pin in lock.pins if pin.name in names),
        installed_bytes=0,
        installed_files=0,
        added=(),
        moved={},
        unproven=None,
        asked=None,
        editable=None,
        captured=None,
        built=(),
    )
    pins = tuple(pin for pin in lock.pins if pin.name in names)
    return sealed(replace(lock, table=table, pins=pins))
