"""The wheels of the wheelhouse that a row's environment can use here, and the way to them. An edge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.builds.inputs import Target
from verl_env.builds.record import BUILT, Record, parse_record, why_not
from verl_env.builds.wheelhouse import RECORD, Stored, checked, find, store, stored
from verl_env.lock.built import Part
from verl_env.lock.table import Built
from verl_env.matrix.pins import WHEELHOUSE

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.indexes import Indexes
    from verl_env.lock.lockfile import Lock, Table
    from verl_env.matrix.builds import Build
    from verl_env.matrix.matrix import Entry
    from verl_env.node.facts import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What there is: `parts` for a lock, `notes` on wheels that do not suit, `offers` of builds that are not made."""

    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    offers: tuple[Build, ...] = ()


def usable(entry: Entry, table: Table, node: Node) -> Usable:
    """Look for a wheel of each build that the row names; each that is taken was compared with its record."""
    wheels = stored() if entry.row.build else ()
    parts, notes, offers = [], [], []
    for build in entry.row.build:
        suiting, why = _first(build, wheels, _target(entry, build, table), node)
        if suiting:
            parts.append(_part(build, checked(suiting).record))
            continue
        offers.append(build)
        if why:
            notes.append(f"a wheel of {build.package} {build.version} is in the wheelhouse, and is not used: {why}")
    return Usable(parts=tuple(parts), notes=tuple(notes), offers=tuple(offers))


def _target(entry: Entry, build: Build, table: Table) -> Target:
    return Target(python=table.python, machine=table.arch, torch=entry.row.set["torch"], cuda=build.toolkit)


def _first(build: Build, wheels: tuple[Stored, ...], target: Target, node: Node) -> tuple[Stored | None, str]:
    """Return the newest wheel that suits, what was compiled from the row's own source first; else why one does not."""
    capabilities = [gpu.compute_capability for gpu in node.gpus if gpu.compute_capability]
    glibc = node.glibc.value if node.glibc else None
    mine = sorted((it for it in wheels if _is_of(it.record, build)), key=lambda it: it.record.kind != BUILT)
    reasons = [(it, why_not(it.record, target, capabilities, glibc)) for it in mine]
    good = next((it for it, reason in reasons if reason is None), None)
    return good, next((reason for _, reason in reasons if reason), "")


def _is_of(record: Record, build: Build) -> bool:
    same = record.package == build.package and Version(record.version).public == build.version
    return same and (record.inputs is None or record.inputs.sdist == build.sdist.sha256)


def _part(build: Build, record: Record) -> Part:
    said = Built(
        package=record.package,
        key=record.key,
        origin=record.kind,
        sdist=record.inputs.sdist if record.inputs else "",
        torch=record.target.torch,
        cuda=record.target.cuda or "",
        architectures=record.architectures,
        glibc=record.glibc or "",
    )
    return Part(pin=record.pin, said=said, imports=build.imports, attention=build.attention)


def with_wheelhouse(lock: Lock, indexes: Indexes) -> Indexes:
    """Return the indexes with the folders of a lock's own built wheels, as far as they are here; raises BuildError.

    A wheel that is not the one that the lock names is left to the other places; uv compares its hash as any other.
    """
    pins = {pin.name: pin for pin in lock.pins if pin.source == WHEELHOUSE}
    folders = []
    for said in lock.table.built:
        one = find(said.key)
        if one and said.package in pins and one.record.sha256 == pins[said.package].sha256:
            folders.append(str(checked(one).folder))
    return replace(indexes, find_links=(*folders, *indexes.find_links)) if folders else indexes


def records_of(lock: Lock) -> tuple[Path, ...]:
    """Return the records of a lock's built wheels, as far as they are here."""
    found = (find(said.key) for said in lock.table.built)
    return tuple(one.folder / RECORD for one in found if one)


def hand_over(records: Path, wheels: Path) -> None:
    """Put wheels that were carried here into the wheelhouse, each with its record, so that builders find them again."""
    for path in sorted(records.glob("*.json")):
        record = parse_record(path.read_text(encoding="utf-8"))
        if find(record.key) is None and (wheels / record.file).is_file():
            checked(store(record, wheels / record.file))


def wheelhouse_options(lock: Lock, indexes: Indexes) -> tuple[str, ...]:
    """Return uv's options for those folders alone: beside a bundle, no index is asked."""
    own = with_wheelhouse(lock, replace(indexes, find_links=())).find_links
    return tuple(word for folder in own for word in ("--find-links", folder))
