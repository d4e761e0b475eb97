"""A row's pins, or what a user made of them, become a lock. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.lock.lockfile import SCHEMA, Lock, Table, sealed
from verl_env.lock.table import Asked, Editable
from verl_env.matrix.pins import Pins
from verl_env.matrix.support import driver_floor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pin

DEFAULT_IMPORTS = ("torch",)
AFRESH = "the row was resolved afresh, not taken from its pins"
MOVED = "packages were moved from the row's pins"
# Unpacked size of wheels whose installed size nobody measured: GPU stacks were 2.1 to 2.3 times their wheels.
_UNPACKED = 2.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes a lock more than its row: what was asked for, the checkout over it, and the rules set aside.

    `base` are the row's own pins.
    """

    base: Pins
    asked: Asked | None = None
    editable: Editable | None = None
    allow: tuple[str, ...] = ()


def build_lock(
    entry: Entry, pins: Pins, facts: Facts, urls: Mapping[str, str] | None = None, *, change: Change | None = None
) -> Lock:
    """Return the lock of one variant of a row; its digest does not depend on `urls`."""
    row, header = entry.row, pins.header
    table = Table(
        schema=SCHEMA,
        digest="",
        row=entry.id,
        title=row.title,
        python=header.python,
        arch=header.arch,
        imports=row.smoke.imports if row.smoke else DEFAULT_IMPORTS,
        cuda=row.cuda,
        driver=driver_floor(row.cuda, facts),
        glibc=header.glibc,
        download_bytes=header.download_bytes,
        installed_bytes=header.installed_bytes,
        installed_files=header.installed_files,
        set=row.set,
        exports=row.exports,
        attention=row.attention.said if row.attention else None,
        settings=row.attention.settings if row.attention else (),
        sources={pin.name: pin.source for pin in pins.pins if pin.source != "default"},
        build=pins.build,
    )
    lock = Lock(table=table, pins=pins.pins, urls=dict(urls or {}))
    return sealed(_changed(lock, change) if change else lock)


def _changed(lock: Lock, change: Change) -> Lock:
    """Say in the table how this lock differs from its row; leave out what the checkout takes the place of."""
    theirs = {pin.name: pin for pin in change.base.pins}
    editable = change.editable
    pins = tuple(pin for pin in lock.pins if editable is None or pin.name != editable.name)
    moved = {pin.name: theirs[pin.name].version for pin in pins if pin.name in theirs and pin != theirs[pin.name]}
    added = tuple(sorted(pin.name for pin in pins if pin.name not in theirs))
    asked = change.asked if change.asked != Asked() else None
    afresh = AFRESH if asked and asked.resolve else None
    table = replace(
        lock.table,
        added=added,
        moved=moved,
        unproven=afresh or (MOVED if moved else None),
        set=_versions(lock.table.set, pins, editable) if moved or afresh or editable else lock.table.set,
        allow=change.allow,
        asked=asked,
        editable=editable,
        download_bytes=sum(pin.size for pin in pins),
        installed_bytes=_installed(pins, change.base),
        installed_files=change.base.header.installed_files,
        sources={pin.name: pin.source for pin in pins if pin.source != "default"},
        build=lock.table.build if editable or any(pin.is_sdist for pin in pins) else (),
    )
    return replace(lock, table=table, pins=pins)


def _versions(said: Mapping[str, str], pins: tuple[Pin, ...], editable: Editable | None) -> dict[str, str]:
    """Bring the row's set up to what is locked; a spelling that still holds (`2.11.0+cu130`) stays."""
    locked = {pin.name: pin.version for pin in pins}
    if editable and editable.version:
        locked[editable.name] = editable.version
    return {
        name: version
        if name not in locked or Version(locked[name]) in (Version(version), Version(Version(version).public))
        else locked[name]
        for name, version in said.items()
    }


def _installed(pins: tuple[Pin, ...], base: Pins) -> int:
    """Return the bytes on disk: what was measured for the row, with an estimate for what was added; 0 if neither."""
    if not base.header.installed_bytes:
        return 0
    theirs = {pin.name for pin in base.pins}
    added = sum(pin.size for pin in pins if pin.name not in theirs)
    return base.header.installed_bytes + int(added * _UNPACKED)


def hashed_requirements(pins: tuple[Pin, ...]) -> str:
    """Return `name==version --hash=sha256:…` lines, which uv and pip install as they are, from any index."""
    return "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins)
