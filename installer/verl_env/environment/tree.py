"""A walk over an environment's files in one fixed order, and what bytecode belongs to."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CACHED = re.compile(r"(?P<stem>[^/]+?)\.cpython-\d+(\.opt-\w+)?\.pyc(\.\d+)?")
# numba's caches beside the bytecode: `module.function-line.pyXYZ.nbi` and `.nbc`.
_NUMBA = re.compile(r"(?P<stem>[^/.]+)\..+\.nb[ic]")


def walk_tree(root: str) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each folder that holds files, relative to `root`, with its files and links by name; follows no link.

    Folders come as their paths sort by component, so that two walks, or a walk and a manifest, meet in step.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        files: list[os.DirEntry[str]] = []
        folders: list[os.DirEntry[str]] = []
        with os.scandir(os.path.join(root, folder)) as found:
            for entry in found:
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry)
        folders.sort(key=lambda it: it.name, reverse=True)
        waiting += [f"{folder}/{it.name}" if folder else it.name for it in folders]
        if files:
            files.sort(key=lambda it: it.name)
            yield folder, files


def order_of(folder: str) -> list[str]:
    """Return what folders sort by in the order of `walk_tree`."""
    return folder.split("/") if folder else []


def source_of(name: str) -> str | None:
    """Return the name of the source beside `__pycache__` that a cache file in it was made from, if it is one.

    Python writes bytecode there when a module is imported with another optimisation level, numba its own caches.
    """
    match = _CACHED.fullmatch(name) or _NUMBA.fullmatch(name)
    return f"{match['stem']}.py" if match else None
