"""What must hold between a row, its pins and the facts. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verl_env.matrix.check_builds import build_faults
from verl_env.matrix.check_pins import pins_faults
from verl_env.matrix.fit import COMPILED, driver_floor
from verl_env.matrix.status import LEVELS

if TYPE_CHECKING:
    from verl_env.matrix.facts import BuildFacts, Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pins
    from verl_env.matrix.rows import Row

ARCHITECTURES = ("x86_64", "aarch64")
_MINOR = re.compile(r"3\.\d{1,2}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_matrix(entry: Entry, pins: Pins | None, facts: Facts) -> list[str]:
    """Return the faults of a row itself, or of one variant's pins held against it; each names its key."""
    if pins is None:
        return [f"{entry.id}: {fault}" for fault in _row_faults(entry.row, facts)]
    return [f"{entry.id} ({pins.header.file_name}): {fault}" for fault in pins_faults(entry.row, pins, facts)]


def notes_of(entry: Entry) -> list[str]:
    """Return what is no fault and worth knowing: variants without pins, evidence that no longer counts."""
    row = entry.row
    have = {(it.python, it.arch) for it in entry.pins}
    wanted = [] if row.broken else [(python, arch) for python in row.python for arch in row.arch]
    notes = [f"no pins for Python {python} on {arch}" for python, arch in wanted if (python, arch) not in have]
    digests = {it.digest for it in entry.pins}
    notes += [
        f"evidence of {it.date}, {it.level}, Python {it.python} on {it.arch}, is of other pins: it does not count"
        for it in row.evidence
        if it.pins not in digests
    ]
    return [f"{entry.id}: {note}" for note in notes]


def _row_faults(row: Row, facts: Facts) -> list[str]:
    faults = [*_set_faults(row), *_resolve_faults(row, facts), *_evidence_faults(row), *build_faults(row)]
    faults += [f'python: not a minor such as 3.12: "{it}"' for it in row.python if not _MINOR.fullmatch(it)]
    faults += [f"arch: not one of {', '.join(ARCHITECTURES)}: `{it}`" for it in row.arch if it not in ARCHITECTURES]
    if row.cuda and driver_floor(row.cuda, facts) is None:
        faults.append(f"cuda: the driver that CUDA {row.cuda} needs is not in cuda.toml")
    if row.cuda and row.engine and row.attention is None and not row.broken:
        faults.append("attention: a GPU row names the path that verl's actor takes")
    faults += [f"allow[{number}].why: say the reason" for number, it in enumerate(row.allow) if not it.why.strip()]
    return faults + (_fact_faults(row, facts) if not faults else [])


def _set_faults(row: Row) -> list[str]:
    faults = [f"set: {name} is required" for name in ("verl", "torch") if name not in row.set]
    for name, version in row.set.items():
        if canonicalize_name(name) != name:
            faults.append(f"set.{name}: write it normalised: {canonicalize_name(name)}")
        try:
            Version(version)
        except InvalidVersion:
            faults.append(f'set.{name}: not a PEP 440 version: "{version}"')
    return faults


def _resolve_faults(row: Row, facts: Facts) -> list[str]:
    asked = row.resolve
    if asked is None:
        return []
    lists = {
        "requirements": asked.requirements,
        "constraints": tuple(it.spec for it in asked.constraints),
        "overrides": tuple(it.spec for it in asked.overrides),
        "build_requirements": asked.build_requirements,
    }
    faults = [f"resolve.{key}: {fault}" for key, specs in lists.items() for fault in _bad_requirements(specs)]
    steering = {"constraints": asked.constraints, "overrides": asked.overrides}
    reasons = {key: tuple(it.why for it in items) for key, items in steering.items()}
    reasons["sdists"] = tuple(it.why for it in asked.sdists)
    faults += [
        f"resolve.{key}[{number}].why: say the reason"
        for key, whys in reasons.items()
        for number, why in enumerate(whys)
        if not why.strip()
    ]
    unknown = sorted({it for it in asked.sources.values() if facts.source(it) is None})
    return faults + [f"resolve.sources: `{it}` is not in mirrors.toml" for it in unknown]


def _bad_requirements(specs: tuple[str, ...]) -> list[str]:
    return [f'not a PEP 508 requirement: "{spec}" ({why})' for spec in specs if (why := _not_a_requirement(spec))]


def _not_a_requirement(spec: str) -> str | None:
    try:
        Requirement(spec)
    except InvalidRequirement as err:
        return str(err).splitlines()[0]
    return None


def _evidence_faults(row: Row) -> list[str]:
    """Look for evidence that no run of this row can have given."""
    faults = [f"evidence: unknown level `{it.level}`" for it in row.evidence if it.level not in LEVELS]
    for number, it in enumerate(row.evidence):
        if it.python.rpartition(".")[0] not in row.python or it.arch not in row.arch:
            faults.append(f"evidence[{number}]: the row is not for Python {it.python} on {it.arch}")
        if not _DIGEST.fullmatch(it.pins):
            faults.append(f"evidence[{number}].pins: not a digest: `{it.pins}`")
        if it.level == "gpu" and it.device == "none":
            faults.append(f"evidence[{number}]: level gpu, and no device")
    return faults


def _fact_faults(row: Row, facts: Facts) -> list[str]:
    """Hold the set against torch.toml: only where that knows the packages."""
    found = {
        (name, arch): build
        for name in COMPILED
        if name in row.set
        for arch in row.arch
        if (build := facts.build(name, row.set[name], machine=arch))
    }
    return [*_torch_faults(row, facts), *_engine_faults(row, found), *_cuda_faults(row, found)]


def _torch_faults(row: Row, facts: Facts) -> list[str]:
    """Say when no such torch exists for an architecture or a Python of the row."""
    version, faults = row.set["torch"], []
    for arch in row.arch:
        build = facts.build("torch", version, machine=arch)
        if build is None and Version(version).local == "cpu":  # every release has one; not all are listed
            build = next(iter(facts.variants("torch", version, machine=arch)), None)
        if build is None:
            known = sorted({str(it.local) for it in facts.variants("torch", version, machine=arch)})
            faults.append(f"set.torch: torch.toml has no {version} for {arch} (it has {', '.join(known) or 'none'})")
            continue
        if row.cuda and build.cpu:
            faults.append(f"set.torch: {version} is built without CUDA for {arch}")
        lacking = [it for it in row.python if build.python and it not in build.python]
        faults += [f"python: torch {version} has no build for Python {it} on {arch}" for it in lacking]
        source = row.resolve.sources.get("torch", "default") if row.resolve else None
        if source and build.indexes and source not in build.indexes and Version(version).local != "cpu":
            faults.append(f"resolve.sources: torch {version} is served by {', '.join(build.indexes)}, not by {source}")
    return faults


def _engine_faults(row: Row, found: dict[tuple[str, str], BuildFacts]) -> list[str]:
    """Say when a compiled package was built against another torch than the set's, and no override says so."""
    overridden = {canonicalize_name(Requirement(it.spec).name) for it in (row.resolve.overrides if row.resolve else ())}
    torch = Version(row.set["torch"]).public
    if "torch" in overridden:
        return []
    wrong = {
        (name, build.torch)
        for (name, _), build in found.items()
        if build.torch and Version(build.torch) != Version(torch)
    }
    return [f"set.torch: {torch}, and {name} {row.set[name]} was built against {pin}" for name, pin in sorted(wrong)]


def _cuda_faults(row: Row, found: dict[tuple[str, str], BuildFacts]) -> list[str]:
    """Say when the row does not state the CUDA that counts: the highest of any compiled package."""
    asked = {name: build.cuda for (name, _), build in found.items() if build.cuda}
    if not row.cuda or not asked:
        return []
    highest = max(asked.values(), key=Version)
    if Version(highest) == Version(row.cuda):
        return []
    said = ", ".join(f"{name} {cuda}" for name, cuda in sorted(asked.items()))
    return [f"cuda: {row.cuda}, and its compiled packages ask for {highest} ({said})"]
