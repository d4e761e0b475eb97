"""Wheels that were compiled once and are in no index, on top of a row's pins. Pure.

The lock has such a wheel as it has any other, by file, size and hash; its table says what it was made from, so that it
can be found in a wheelhouse, or made again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.lock.lockfile import Lock, sealed
from verl_env.lock.table import Built
from verl_env.matrix.pins import Pin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verl_env.matrix.attention import Attention
    from verl_env.matrix.rows import Row

_UNPACKED = 4  # compiled wheels pack well: flash-attn's library is four times its wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One wheel to add: its pin, what the table says of it, and what the row says of its package."""

    pin: Pin
    said: Built
    imports: tuple[str, ...] = ()
    attention: Attention | None = None


def with_built(lock: Lock, parts: Iterable[Part]) -> Lock:
    """Return the lock with these wheels in it, sealed anew; the same lock when there are none."""
    added = tuple(parts)
    if not added:
        return lock
    table, pins = lock.table, tuple(part.pin for part in added)
    attention = next((part.attention for part in added if part.attention), None)
    size = sum(pin.size for pin in pins)
    floors = [*([table.glibc] if table.glibc else []), *(part.said.glibc for part in added if part.said.glibc)]
    table = replace(
        table,
        built=tuple(part.said for part in added),
        added=tuple(sorted({*table.added, *(pin.name for pin in pins)})),
        imports=(*table.imports, *(name for part in added for name in part.imports)),
        glibc=max(floors, key=Version, default=None),
        download_bytes=table.download_bytes + size,
        installed_bytes=table.installed_bytes + _UNPACKED * size if table.installed_bytes else 0,
        set=table.set | {pin.name: pin.version for pin in pins},
        sources=table.sources | {pin.name: pin.source for pin in pins},
        attention=attention.path if attention else table.attention,
        settings=attention.settings if attention else table.settings,
    )
    names = {pin.name for pin in pins}
    return sealed(replace(lock, table=table, pins=(*(pin for pin in lock.pins if pin.name not in names), *pins)))


def parts_in(lock: Lock, row: Row) -> tuple[Part, ...]:
    """Return the built wheels that a lock has, as far as the row still names their builds: for `lock --check`."""
    builds = {build.package: build for build in row.build}
    pins = {pin.name: pin for pin in lock.pins}
    found = []
    for said in lock.table.built:
        build, pin = builds.get(said.package), pins.get(said.package)
        if build and pin and said.sdist in ("", build.sdist.sha256) and Version(pin.version).public == build.version:
            found.append(Part(pin=pin, said=said, imports=build.imports, attention=build.attention))
    return tuple(found)
