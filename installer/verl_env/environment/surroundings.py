"""What of this node decides an environment's exports and its place. Reads; writes nothing."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.environment.caches import find_caches
from verl_env.environment.exports import Surroundings
from verl_env.node.folders import probe_folders
from verl_env.node.host import Host
from verl_env.node.toolkits import find_toolkits

if TYPE_CHECKING:
    from verl_env.node.facts import Node, Toolkit


def look_around(node: Node, *, measured: bool) -> Surroundings:
    """Return what decides the exports here; toolkits are looked for when the node was only described."""
    toolkits: tuple[Toolkit, ...] = node.toolkits if measured else find_toolkits(Host())
    caches = find_caches(os.environ, paths.user_home(), paths.home(), partial(probe_folders, Host()))
    return Surroundings(toolkits=toolkits, caches=caches, library_folder=_library_folder(node))


def _library_folder(node: Node) -> str | None:
    """Return the folder of libcuda when only this process's LD_LIBRARY_PATH leads to it."""
    if node.libcuda is None:
        return None
    folder = str(Path(node.libcuda.path).parent)
    ambient = [os.path.realpath(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    return folder if os.path.realpath(folder) in ambient else None
