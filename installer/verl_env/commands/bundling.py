"""A lock becomes a bundle: every file found, then written; what `bundle` and `cluster install` share."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import fetch, output
from verl_env.builds.use import records_of, with_wheelhouse
from verl_env.bundle import tool
from verl_env.bundle.layout import TOOL, render_manifest, total_bytes
from verl_env.bundle.pieces import piece_of
from verl_env.bundle.plan import Cargo, Packed, pack
from verl_env.bundle.read import Bundle
from verl_env.bundle.unfinished import Unfinished, unfinished_manifest
from verl_env.bundle.write import Content, write_bundle
from verl_env.errors import LockError
from verl_env.lock.locate import locate
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from verl_env.bundle.tool import Needed
    from verl_env.indexes import Indexes
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A lock to be carried: into which file, from which indexes, without what, in pieces of `split` bytes.

    `matrix` are the files that its row comes from.
    """

    target: Path
    lock: Lock
    indexes: Indexes
    facts: Facts
    matrix: tuple[Path, ...] = ()
    left_out: tuple[Pin, ...] = ()
    split: int | None = None
    with_python: bool = False


def bundle_lock(order: Order, *, dry: bool = False) -> tuple[Packed, tuple[Path, ...]]:
    """Write a lock's bundle, or take up an unfinished one; return what is in it, and its files."""
    lock, target = order.lock, order.target
    indexes = with_wheelhouse(lock, order.indexes)
    _refuse_what_cannot_be_carried(lock)
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        python = None
        if order.with_python:
            from verl_env.bundle.python import pack_python

            python = pack_python(lock.table.python, Path(name))
        needed = _needed(order, indexes)
        gone = {pin.file for pin in order.left_out}
        wanted = tuple(pin for pin in lock.pins if pin.file not in gone)
        located = locate(wanted, lock.table.python, indexes, order.facts)
        others = tuple(dict.fromkeys((*(it.pin for it in needed), *lock.table.build)))
        urls = locate(others, tool.OLDEST_PYTHON, indexes, order.facts).urls
        lock = replace(lock, urls={**_places(lock), **located.urls})
        cargo = Cargo(lock=lock, needed=needed, urls=urls, left_out=order.left_out, matrix=order.matrix, python=python)
        packed = pack(replace(cargo, records=records_of(lock)))
        older = _older(target, order.split)
        if dry or (older and older.manifest == packed.manifest):
            return packed, older.paths if older and not dry else ()
        door = fetch.open_door(indexes)
        output.note(f"{lock.table.title}: {human_bytes(bytes_of(packed))} into {target}")
        contents = packed.contents | _from_older(older, packed)
        return packed, write_bundle(target, packed.manifest, contents, door, limit=order.split)


def _refuse_what_cannot_be_carried(lock: Lock) -> None:
    """Refuse a lock whose environment needs more than files with hashes."""
    captured = lock.table.captured
    if lock.table.editable or (captured and (captured.git or captured.patch)):
        what = "a checkout" if lock.table.editable else "repositories or a patch"
        raise LockError(
            f"the lock needs {what} beside its packages, which a bundle does not carry",
            hint="bundle the row it was made from, and carry the rest beside it",
        )


def _places(lock: Lock) -> dict[str, str]:
    """Return a place for every pin, also for those that are left out: PEP 751 wants one."""
    return {pin.file: lock.urls.get(pin.file) or pin.file for pin in lock.pins}


def _needed(order: Order, indexes: Indexes) -> tuple[Needed, ...]:
    """Return what verl-env needs: as an unfinished bundle of this lock has it, else resolved now."""
    target, limit, lock = order.target, order.split, order.lock
    begun = unfinished_manifest(target, limit)
    if begun and begun.digest == lock.table.digest:
        text = Unfinished(target, limit).member(begun, f"{TOOL}requirements.txt")
        wheels = {it.sha256: (it.size, it.path.removeprefix(TOOL)) for it in begun.members if it.path.startswith(TOOL)}
        if text is not None:
            return tool.read_requirements(text.decode(), wheels)
    return tool.resolve_needed(indexes, lock.table.arch)


def _older(target: Path, limit: int | None) -> Bundle | None:
    """Open the finished bundle of this name, when there is one: what it holds is not fetched again."""
    first = target if limit is None else piece_of(target, 1)
    try:
        return Bundle(first) if first.is_file() else None
    except LockError:
        return None


def _from_older(older: Bundle | None, packed: Packed) -> dict[str, Content]:
    """Take the files that an older bundle has, by their hashes."""
    if older is None:
        return {}
    known = {it.sha256: it.path for it in older.manifest.members}
    fetched = (it for it in packed.manifest.members if packed.contents[it.path].data is None)
    return {it.path: Content(older=(older, known[it.sha256])) for it in fetched if it.sha256 in known}


def bytes_of(packed: Packed) -> int:
    """Return the size of the whole bundle."""
    return total_bytes(render_manifest(packed.manifest), packed.manifest)
