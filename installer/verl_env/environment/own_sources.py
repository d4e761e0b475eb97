"""Sources that people edit become an environment's own files: a hard link would carry an edit into uv's cache.

Most editors write a hard-linked file in place, and then every environment that is linked from the cache has the edit.
Only what people patch is copied (vLLM's 2042 and verl's 366 sources have 34 MB); all else stays linked.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDITED = ("verl", "vllm", "sglang")


def own_sources(folder: Path) -> int:
    """Give the sources of the packages in EDITED files of their own; return how many were linked."""
    count = 0
    for name in EDITED:
        for top in folder.glob(f"lib/python*/site-packages/{name}"):
            for source in _linked(top):
                _copy_in_place(source)
                count += 1
    return count


def _linked(top: Path) -> Iterator[str]:
    """Yield Python sources below a folder that have a name elsewhere."""
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and not os.path.islink(path) and os.stat(path).st_nlink > 1:
                yield path


def _copy_in_place(path: str) -> None:
    """Put a copy, with its times and mode, under the file's name."""
    new = f"{path}.own"
    shutil.copy2(path, new)
    os.replace(new, path)
