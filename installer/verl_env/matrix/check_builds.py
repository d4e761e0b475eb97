"""What must hold of a row's builds: by themselves, and against the row and its pins. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from verl_env.matrix.builds import ARCHITECTURES, SM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.matrix.builds import Build
    from verl_env.matrix.pins import Pin, Pins
    from verl_env.matrix.rows import Row

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
_WORD = re.compile(r"\{[^}]*\}")
_GLIBC = "2.28"  # of the oldest node that a build is meant for: its tools must run there


def build_faults(row: Row) -> list[str]:
    """Return every fault of a row's builds; each names its key."""
    faults = [f"build[{number}].{fault}" for number, build in enumerate(row.build) for fault in _faults(build, row)]
    names = [it.package for it in row.build]
    return faults + [
        f"build: `{name}` is there {names.count(name)} times" for name in dict.fromkeys(names) if names.count(name) > 1
    ]


def pinned_builds(row: Row, pins: Pins) -> list[str]:
    """Say when a package that is to be built is among the pins already: the lock would have it twice."""
    pinned = {pin.name for pin in pins.pins}
    return [f"build: `{it.package}` is pinned already" for it in row.build if it.package in pinned]


def _faults(build: Build, row: Row) -> Iterator[str]:
    if canonicalize_name(build.package) != build.package:
        yield f"package: write it normalised: {canonicalize_name(build.package)}"
    yield from _source_faults(build)
    yield from _requires_faults(build, row)
    if not row.cuda:
        yield "toolkit: the row has no CUDA"
    elif (said := cuda_of_torch(row)) != build.toolkit:
        yield f"toolkit: {build.toolkit}, and the row's torch is built with CUDA {said}"
    yield from (
        f"architectures: not a compute capability: `{it}`"
        for it in build.architectures
        if not _CAPABILITY.fullmatch(it)
    )
    if not build.architectures:
        yield "architectures: name those that it can be compiled for"
    unknown = {word for text in build.environment.values() for word in _WORD.findall(text)} - {ARCHITECTURES, SM}
    yield from (f"environment: `{word}` stands for nothing ({ARCHITECTURES}, {SM})" for word in sorted(unknown))
    if not build.job_gb > 0:
        yield f"job_gb: {build.job_gb}"
    if not build.imports:
        yield "imports: name a module that shows that it loads"
    yield from (f"{key}: say it" for key in ("why", "source") if not getattr(build, key).strip())


def cuda_of_torch(row: Row) -> str | None:
    """Return the CUDA that a row's torch is built with: as its label says (`+cu130`), else the row's."""
    local = Version(row.set["torch"]).local if "torch" in row.set else None
    label = re.fullmatch(r"cu(\d+)(\d)", local or "")
    return f"{label[1]}.{label[2]}" if label else row.cuda


def _source_faults(build: Build) -> Iterator[str]:
    try:
        if Version(build.version).local:
            yield f"version: {build.version}; the label is given when it is built"
        if parse_sdist_filename(build.sdist.file) != (build.package, Version(build.version)):
            yield f"sdist.file: `{build.sdist.file}` is not {build.package} {build.version}"
    except InvalidVersion:
        yield f"version: not a PEP 440 version: `{build.version}`"
    except ValueError:
        yield f"sdist.file: not the name of an sdist: `{build.sdist.file}`"
    if not build.sdist.file.endswith(".tar.gz"):
        yield f"sdist.file: only .tar.gz is unpacked: `{build.sdist.file}`"
    if not _SHA256.fullmatch(build.sdist.sha256) or build.sdist.size <= 0:
        yield "sdist: say its size and its sha256 of 64 hex digits"


def _requires_faults(build: Build, row: Row) -> Iterator[str]:
    """Look at each file, and for a file of each package that every Python and machine of the row can use."""
    good = [pin for pin in build.requires if _names(pin)]
    yield from (
        f"requires: `{pin.file}` is no wheel of {pin.name} {pin.version}" for pin in build.requires if pin not in good
    )
    yield from (
        f"requires: {pin.name}: say its size and its sha256 of 64 hex digits"
        for pin in build.requires
        if not _SHA256.fullmatch(pin.sha256) or pin.size <= 0
    )
    if len(good) != len(build.requires):
        return
    for python in row.python:
        for arch in row.arch:
            have = {pin.name for pin in build.requires_on(python, arch, _GLIBC)}
            for name in dict.fromkeys(pin.name for pin in good if pin.name not in have):
                yield f"requires: no wheel of {name} suits Python {python} on {arch} with glibc {_GLIBC}"


def _names(pin: Pin) -> bool:
    try:
        return parse_wheel_filename(pin.file)[:2] == (canonicalize_name(pin.name), Version(pin.version))
    except (InvalidWheelFilename, InvalidVersion):
        return False
