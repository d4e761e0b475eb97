"""A row's pins become a lock. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.lock.lockfile import SCHEMA, Lock, Table, sealed
from verl_env.matrix.fit import driver_floor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pin, Pins

DEFAULT_IMPORTS = ("torch",)


def build_lock(entry: Entry, pins: Pins, facts: Facts, urls: Mapping[str, str] | None = None) -> Lock:
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
        attention=row.attention.path if row.attention else None,
        settings=row.attention.settings if row.attention else (),
        sources={pin.name: pin.source for pin in pins.pins if pin.source != "default"},
        build=pins.build,
    )
    return sealed(Lock(table=table, pins=pins.pins, urls=dict(urls or {})))


def hashed_requirements(pins: tuple[Pin, ...]) -> str:
    """Return `name==version --hash=sha256:…` lines, which uv and pip install as they are, from any index."""
    return "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins)
