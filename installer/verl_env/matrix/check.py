"""What must hold between a row, its pins and the facts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verl_env.matrix.fit import COMPILED, driver_floor
from verl_env.matrix.status import LEVELS
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pins
    from verl_env.matrix.rows import Row


def check_matrix(entry: Entry, pins: Pins | None, facts: Facts) -> list[str]:
    """Return the faults of a row itself, or of one variant's pins held against it; each names its key."""
    if pins is None:
        return [f"{entry.id}: {fault}" for fault in _row_faults(entry.row, facts)]
    return [f"{entry.id} ({pins.header.file_name}): {fault}" for fault in _pins_faults(entry.row, pins)]


def _row_faults(row: Row, facts: Facts) -> list[str]:
    faults = [f"set: {name} is required" for name in ("verl", "torch") if name not in row.set]
    for name, version in row.set.items():
        if canonicalize_name(name) != name:
            faults.append(f"set.{name}: write it normalised: {canonicalize_name(name)}")
        try:
            Version(version)
        except InvalidVersion:
            faults.append(f'set.{name}: not a PEP 440 version: "{version}"')
    if row.resolve:
        lists = {
            "requirements": row.resolve.requirements,
            "constraints": tuple(it.spec for it in row.resolve.constraints),
            "overrides": tuple(it.spec for it in row.resolve.overrides),
            "build_requirements": row.resolve.build_requirements,
        }
        faults += [f"resolve.{key}: {fault}" for key, specs in lists.items() for fault in _bad_requirements(specs)]
        unknown = sorted({it for it in row.resolve.sources.values() if facts.source(it) is None})
        faults += [f"resolve.sources: `{it}` is not in mirrors.toml" for it in unknown]
    if row.cuda and driver_floor(row.cuda, facts) is None:
        faults.append(f"cuda: the driver that CUDA {row.cuda} needs is not in cuda.toml")
    faults += [f"evidence: unknown level `{it.level}`" for it in row.evidence if it.level not in LEVELS]
    if row.cuda and row.engine and row.attention is None:
        faults.append("attention: a GPU row names the path that verl's actor takes")
    return faults + (_cuda_faults(row, facts) if not faults else [])


def _bad_requirements(specs: tuple[str, ...]) -> list[str]:
    found = []
    for spec in specs:
        try:
            Requirement(spec)
        except InvalidRequirement as err:
            found.append(f'not a PEP 508 requirement: "{spec}" ({str(err).splitlines()[0]})')
    return found


def _cuda_faults(row: Row, facts: Facts) -> list[str]:
    """The CUDA that counts is the highest of any compiled package: the row must state that one."""
    found = {}
    for name in (name for name in COMPILED if name in row.set):
        for arch in row.arch:
            build = facts.build(name, row.set[name], machine=arch)
            if build and build.cuda:
                found[name] = build.cuda
    if not row.cuda or not found:
        return []
    highest = max(found.values(), key=Version)
    if Version(highest) == Version(row.cuda):
        return []
    return [f"cuda: {row.cuda}, and its compiled packages ask for {highest} ({found})"]


def _pins_faults(row: Row, pins: Pins) -> list[str]:
    """The pins must hold the set, one file a package, of this Python and architecture."""
    versions = {pin.name: pin.version for pin in pins.pins}
    faults = [
        f"{name} is {versions.get(name, 'missing')}, and the row's set says {wanted}"
        for name, wanted in row.set.items()
        if not _same(versions.get(name), wanted)
    ]
    if len(versions) != len(pins.pins):
        faults.append("a package has more than one file")
    sdists = {canonicalize_name(it.name) for it in row.resolve.sdists} if row.resolve else set()
    faults += [
        f"{pin.name} is an sdist that the row does not list"
        for pin in pins.pins
        if pin.is_sdist and pin.name not in sdists
    ]
    tags = supported_tags(pins.header.python, pins.header.arch, pins.header.glibc or "2.17")
    wheels = [pin.file for pin in pins.pins if not pin.is_sdist]
    where = f"Python {pins.header.python} on {pins.header.arch}"
    return faults + [f"{file} cannot be installed by {where}" for file in wheels if rank_of(file, tags) is None]


def _same(pinned: str | None, wanted: str) -> bool:
    """A set may name the local label of the default index's build (`2.11.0+cu130`), which its file does not have."""
    if pinned is None:
        return False
    return Version(pinned) == Version(wanted) or Version(pinned) == Version(Version(wanted).public)
