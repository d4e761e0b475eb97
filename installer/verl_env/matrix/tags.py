"""Which wheels a Python on a Linux can install, for another machine than this one. Pure."""

from __future__ import annotations

import functools

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename


@functools.lru_cache(maxsize=32)
def supported_tags(python: str, arch: str, glibc: str) -> dict[Tag, int]:
    """Return the tags (PEP 425, PEP 600) of a CPython on a Linux of this glibc, with their rank: 0 is best."""
    version = tuple(int(part) for part in python.split("."))
    top = int(glibc.split(".")[1])
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(top, 4, -1)] + [
        f"manylinux2014_{arch}",
        f"manylinux2010_{arch}",
        f"manylinux1_{arch}",
        f"linux_{arch}",
    ]
    interpreter = f"cp{''.join(python.split('.'))}"
    every = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(every)}


def rank_of(file: str, tags: dict[Tag, int]) -> int | None:
    """Return the rank of a wheel's best tag, or None when none is supported; raises InvalidWheelFilename."""
    _, _, _, found = parse_wheel_filename(file)
    return min((tags[tag] for tag in found if tag in tags), default=None)
