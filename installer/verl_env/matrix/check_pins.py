"""What must hold of one variant's pins: by themselves, and against their row. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from verl_env.matrix.check_builds import pinned_builds
from verl_env.matrix.pins import make_pins
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin, Pins, PinsHeader
    from verl_env.matrix.rows import Row

_SHA256 = re.compile(r"[0-9a-f]{64}")


def pins_faults(row: Row, pins: Pins, facts: Facts) -> list[str]:
    """Return every fault of one variant's pins."""
    faults = [fault for pin in (*pins.pins, *pins.build) for fault in _pin_faults(pin, facts)]
    faults += [*_header_faults(pins), *_set_faults(row, pins), *_policy_faults(row, pins), *_tag_faults(pins)]
    return [*faults, *pinned_builds(row, pins)]


def _pin_faults(pin: Pin, facts: Facts) -> Iterator[str]:
    """Look at one file by itself."""
    if canonicalize_name(pin.name) != pin.name:
        yield f"{pin.name}: write it normalised"
    if not _SHA256.fullmatch(pin.sha256):
        yield f"{pin.name}: its sha256 is not 64 hex digits"
    if pin.size <= 0:
        yield f"{pin.name}: its size is {pin.size}"
    if facts.source(pin.source) is None:
        yield f"{pin.name}: its source `{pin.source}` is not in mirrors.toml"
    if any("/" in text or ":" in text for text in (pin.name, pin.version, pin.file, pin.source)):
        yield f"{pin.name}: pins hold names, and neither paths nor URLs"
        return
    if (said := _named_by(pin.file)) and said != (pin.name, Version(pin.version)):
        yield f"{pin.name} {pin.version}: its file is `{pin.file}`"


def _named_by(file: str) -> tuple[str, Version] | None:
    """Return the package and version of a file name; None for an sdist of the time before PEP 625."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[:2]
        return parse_sdist_filename(file)
    except ValueError:
        return None


def _header_faults(pins: Pins) -> list[str]:
    """Compute the header again: the choice is made from it alone."""
    head = pins.header
    right: PinsHeader = make_pins(
        head.row, head.python, head.arch, pins=pins.pins, build=pins.build, made=head.made
    ).header
    right = replace(right, installed_bytes=head.installed_bytes, installed_files=head.installed_files)
    keys = ("digest", "glibc", "packages", "download_bytes", "sources")
    return [
        f"{key}: its header says {getattr(head, key)}, its packages give {getattr(right, key)}"
        for key in keys
        if getattr(head, key) != getattr(right, key)
    ]


def _set_faults(row: Row, pins: Pins) -> list[str]:
    """Hold the versions of the row's set against the pins."""
    versions = {pin.name: pin.version for pin in pins.pins}
    faults = [
        f"{name} is {versions.get(name, 'missing')}, and the row's set says {wanted}"
        for name, wanted in row.set.items()
        if not _same(versions.get(name), wanted)
    ]
    if len(versions) != len(pins.pins):
        faults.append("a package has more than one file")
    return faults


def _same(pinned: str | None, wanted: str) -> bool:
    """Compare; a set may name the local label of the default index's build (`2.11.0+cu130`), which its file lacks."""
    if pinned is None:
        return False
    return Version(pinned) == Version(wanted) or Version(pinned) == Version(Version(wanted).public)


def _policy_faults(row: Row, pins: Pins) -> Iterator[str]:
    """Hold sdists, sources, requirements, constraints and overrides of the row against the pins."""
    asked = row.resolve
    listed = {canonicalize_name(it.name) for it in asked.sdists} if asked else set()
    for pin in pins.pins:
        if pin.is_sdist and pin.name not in listed:
            yield f"{pin.name} is an sdist that the row does not list"
        if asked and pin.source != asked.sources.get(pin.name, "default"):
            yield f"{pin.name} is from `{pin.source}`, and the row says {asked.sources.get(pin.name, 'default')}"
    if asked is None:
        return
    versions = {pin.name: pin.version for pin in pins.pins}
    overrides = [Requirement(it.spec) for it in asked.overrides]
    overridden = {canonicalize_name(it.name) for it in overrides}
    wanted = [Requirement(it) for it in asked.requirements]
    held = {
        "requirement": [it for it in wanted if canonicalize_name(it.name) not in overridden],
        "constraint": [Requirement(it.spec) for it in asked.constraints],
        "override": overrides,
    }
    where = _environment(pins.header)
    for kind, requirements in held.items():
        for it in requirements:
            version = versions.get(canonicalize_name(it.name))
            applies = it.marker is None or it.marker.evaluate(where)
            if version is None and kind == "requirement" and applies:
                yield f"requirement {it}: {it.name} is not pinned"
            if version is not None and applies and not it.specifier.contains(version, prereleases=True):
                yield f"{kind} {it}: {it.name} is {version}"


def _environment(head: PinsHeader) -> dict[str, str]:
    """Return the markers of the Python and machine that the pins are for (PEP 508)."""
    return {
        "python_version": head.python,
        "python_full_version": f"{head.python}.0",
        "platform_machine": head.arch,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def _tag_faults(pins: Pins) -> list[str]:
    """Look for wheels that this Python on this machine cannot install."""
    tags = supported_tags(pins.header.python, pins.header.arch, pins.header.glibc or "2.17")
    wheels = [pin.file for pin in pins.pins if not pin.is_sdist]
    where = f"Python {pins.header.python} on {pins.header.arch}"
    return [
        f"{file} cannot be installed by {where}"
        for file in wheels
        if not _named_by(file) or rank_of(file, tags) is None
    ]
