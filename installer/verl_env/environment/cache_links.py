"""Which files of uv's cache are, by a hard link, the same files as an environment's."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MOST_WHEELS = 100_000  # unpacked wheels of a cache that are looked at


def linked_in_cache(folder: Path, path: str, cache: Path) -> tuple[str, ...]:
    """Return the files of uv's cache that are this very file (same inode), looked for where uv keeps wheels.

    `path` is relative to the environment; below site-packages it is the same in the unpacked wheel (uv's
    `archive-v*/<id>/`).
    """
    try:
        about = (folder / path).lstat()
    except OSError:
        return ()
    _, found, inside = path.partition("/site-packages/")
    if about.st_nlink < 2 or not found:  # noqa: PLR2004 - the link in the environment and one more
        return ()
    same = []
    for archive in islice(cache.glob("archive-v*/*"), _MOST_WHEELS):
        try:
            other = (archive / inside).lstat()
        except OSError:
            continue
        if (other.st_dev, other.st_ino) == (about.st_dev, about.st_ino):
            same.append(str(archive / inside))
    return tuple(same)
