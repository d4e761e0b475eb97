"""The one file of a package that a resolution found, for one Python and platform. An edge only for sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from verl_env.errors import ResolveError
from verl_env.fetch import content_length
from verl_env.lock.render import file_of
from verl_env.matrix.pins import Pin
from verl_env.matrix.tags import rank_of

if TYPE_CHECKING:
    from packaging.tags import Tag

    from verl_env.indexes import Indexes


def pin_of_package(package: dict[str, Any], tags: dict[Tag, int], indexes: Indexes) -> Pin:
    """Pin a package of uv's pylock by the wheel whose tag ranks first; raises ResolveError when none will do."""
    name, version = package["name"], package["version"]
    ranked = [(rank_of(_name(file), tags), file) for file in package.get("wheels", ())]
    suitable = [(rank, file) for rank, file in ranked if rank is not None]
    if not suitable:
        raise ResolveError(
            f"{name} {version} has no wheel for this Python and platform",
            hint="ask for a version that has one; building from source would run code that no hash vouches for",
        )
    file = min(suitable, key=lambda it: it[0])[1]
    digest = file.get("hashes", {}).get("sha256")
    if not digest:
        raise ResolveError(f"{name} {version} has no sha256 on its index", hint="only hashed files can be pinned")
    return Pin(name=name, version=version, file=_name(file), size=_size(file, indexes), sha256=digest)


def _name(file: dict[str, Any]) -> str:
    return str(file.get("name") or file_of(file.get("url") or file["path"]))


def _size(file: dict[str, Any], indexes: Indexes) -> int:
    """Return a file's size in bytes: what the index says, what lies in the folder, or what its server says."""
    if "size" in file:
        return int(file["size"])
    place = file.get("url") or file["path"]
    if place.startswith("file:") or "://" not in place:
        return Path(unquote(urlsplit(place).path)).stat().st_size
    size = content_length(place, logins=(indexes.default or "", *indexes.extra, *indexes.by_source.values()))
    if size is None:
        raise ResolveError(
            f"`{_name(file)}`: neither its index nor its server states a size", hint="use an index that states sizes"
        )
    return size
