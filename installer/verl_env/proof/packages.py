"""The packages of an environment, as their metadata has them: which files are whose, and who depends on whom."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

_NAME = re.compile(r"^Name: *(\S+)", re.MULTILINE)
_REQUIRES = re.compile(r"^Requires-Dist: *([A-Za-z0-9][A-Za-z0-9._-]*) *(?:\[([^]]*)\])?(.*)$", re.MULTILINE)
_EXTRA = re.compile(r"extra *== *['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A package that another needs, with which of its extras; `extra` is the one it is needed for, or ""."""

    name: str
    extras: tuple[str, ...] = ()
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One installed package: its files as paths, and what its metadata says that it needs."""

    name: str
    files: tuple[str, ...]
    needs: tuple[Need, ...] = ()


def read_packages(folder: Path) -> dict[str, Package]:
    """Return the packages of a site-packages folder by name; one without RECORD or METADATA is left out."""
    found: dict[str, Package] = {}
    for info in sorted(folder.glob("*.dist-info")):
        try:
            metadata = (info / "METADATA").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
            record = (info / "RECORD").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if match := _NAME.search(metadata):
            name = canonicalize_name(match[1])
            paths = (os.path.normpath(f"{folder}/{_path(line)}") for line in record.splitlines() if line)
            needs = (_need(*it.groups(default="")) for it in _REQUIRES.finditer(metadata))
            found[name] = Package(name=name, files=tuple(paths), needs=tuple(dict.fromkeys(needs)))
    return found


def _need(name: str, extras: str, rest: str) -> Need:
    """Read one Requires-Dist; markers other than `extra` are left to whoever resolved: what is there is there."""
    wanted = tuple(canonicalize_name(it.strip()) for it in extras.split(",") if it.strip())
    found = _EXTRA.search(rest)
    return Need(name=canonicalize_name(name), extras=wanted, extra=canonicalize_name(found[1]) if found else "")


def _path(line: str) -> str:
    """Return the path of a line of RECORD; one with a comma in it is quoted."""
    if line.startswith('"'):
        return line[1:].partition('",')[0].replace('""', '"')
    return line.partition(",")[0]


def needed_by(name: str, packages: Mapping[str, Package]) -> frozenset[str]:
    """Return every package that one needs, directly or through others, with the extras that are asked for."""
    seen: set[tuple[str, str]] = set()
    waiting = [(name, "")]
    while waiting:
        one, extra = waiting.pop()
        if (one, extra) in seen or one not in packages:
            continue
        seen.add((one, extra))
        for need in packages[one].needs:
            if need.extra in ("", extra):
                waiting += [(need.name, ""), *((need.name, it) for it in need.extras)]
    return frozenset(one for one, _ in seen) - {name}


def owners(packages: Iterable[Package]) -> dict[str, str]:
    """Return the package of each file."""
    return {path: package.name for package in packages for path in package.files}
