"""What `install` and `repair` share: the way to the files, and the plan of a build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.environment.build import WAIT_SECONDS
from verl_env.environment.preflight import find_python
from verl_env.lock.build import hashed_requirements
from verl_env.lock.locate import base_options, source_options
from verl_env.node.names import device_name

if TYPE_CHECKING:
    import argparse

    from verl_env.indexes import Indexes
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts
    from verl_env.node.facts import Node


def add_wait_argument(group: argparse._ActionsContainer) -> None:
    """Add how long to wait for another verl-env that is at work on the same environment."""
    group.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"wait this long for another installer of the same environment (default: {WAIT_SECONDS:.0f})",
    )


def cache_options(lock: Lock, indexes: Indexes, facts: Facts) -> tuple[str, ...]:
    """Return uv's options for every place a lock's files may have come from: its cache is kept by place."""
    options = [*base_options(indexes)]
    for source in sorted({pin.source for pin in lock.pins}):
        mine = tuple(pin for pin in lock.pins if pin.source == source)
        options += [word for option in source_options(source, mine, indexes, facts) for word in option]
    return tuple(options)


def is_cached(lock: Lock, options: tuple[str, ...]) -> bool:
    """Whether uv could install this lock from its cache alone; not where uv comes only with a bundle."""
    if uv.find() is None:
        return False
    python = Path(find_python(lock.table.python, fetch=False).path)
    return uv.is_cached(python, hashed_requirements(lock.pins), hashed_requirements(lock.table.build), options)


def device_of(node: Node) -> str:
    """Name the device that is present while a proof runs; a described GPU is not present."""
    gpus = () if node.described else node.gpus
    return device_name([gpu.name for gpu in gpus], node.driver.version if node.driver else None)
