"""Packages that uv could not unpack from its own cache, by its words. Pure."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

# `Failed to install: torch-2.13.0-cp311-….whl (torch==2.13.0)`, then why: a folder of the cache that is gone, a wheel
# that is invalid (uv 0.11). What the target refuses is said in the same words, and is no fault of the cache.
_FAILED = re.compile(r"Failed to install: ([A-Za-z0-9][A-Za-z0-9._]*)-\d\S*\.whl")
_TARGETS_FAULT = ("No space left", "Disk quota", "Permission denied", "Read-only file system", "Input/output error")


def broken_in_cache(said: str) -> tuple[str, ...]:
    """Return the packages (PEP 503) that are to be fetched anew; none when the target was at fault."""
    if any(words in said for words in _TARGETS_FAULT):
        return ()
    return tuple(sorted({str(canonicalize_name(name)) for name in _FAILED.findall(said)}))
