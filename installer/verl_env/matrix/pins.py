"""Pins: a row's validated closure for one Python minor and one architecture, one file a package, no URL.

A hash says what a file is, an index only where to fetch it: the same pins install through any index, mirror,
folder of wheels or cache.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import dataclass

# PEP 600 names its level in the tag; PEP 513, 571 and 599 tags stand for these levels (PEP 600, legacy aliases).
_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
# The source of wheels that were built here or adopted: no index has them, and a row's own pins are never from there.
WHEELHOUSE = "wheelhouse"
_MANYLINUX = re.compile(r"(manylinux1|manylinux2010|manylinux2014|manylinux_(\d+)_(\d+))_\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One file of one package. `size` is in bytes; `sha256` is bare hex; `source` is a symbol of mirrors.toml."""

    name: str
    version: str
    file: str
    size: int
    sha256: str
    source: str = "default"

    @property
    def is_sdist(self) -> bool:
        """Whether this is a source distribution, which is built on the node."""
        return not self.file.endswith(".whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinsHeader:
    """What choosing needs of the pins, so that it does not read every package of every row.

    `glibc` is the floor that the platform tags ask for, or None when no wheel states one. `installed_bytes` and
    `installed_files` were measured by `matrix prove`, and are 0 before that.
    """

    row: str
    python: str
    arch: str
    digest: str
    packages: int
    download_bytes: int
    sources: tuple[str, ...]
    made: dt.date
    glibc: str | None = None
    installed_bytes: int = 0
    installed_files: int = 0

    @property
    def file_name(self) -> str:
        """The name of the file these pins live in."""
        return f"{self.row}-cp{self.python.replace('.', '')}-{self.arch}.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The closure: `pins` are installed; `build` are what their sdists need to be built, installed nowhere."""

    header: PinsHeader
    pins: tuple[Pin, ...]
    build: tuple[Pin, ...] = ()


def digest_of(pins: tuple[Pin, ...], build: tuple[Pin, ...]) -> str:
    """Return `sha256:…` over what is installed: name, version, file, size, hash; never where it is fetched from."""
    lines = [
        f"{kind} {pin.name} {pin.version} {pin.file} {pin.size} {pin.sha256}\n"
        for kind, group in (("pin", pins), ("build", build))
        for pin in sorted(group, key=lambda pin: (pin.name, pin.file))
    ]
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def glibc_floor(files: tuple[str, ...]) -> str | None:
    """Return the lowest glibc on which every wheel's platform tag admits an installer (PEP 600), as `"2.31"`.

    A wheel with several platform tags installs where the lowest of them does. Wheels tagged `any` or plain
    `linux_*` state no level and do not count.
    """
    floors = [min(levels) for file in files if (levels := _levels(file))]
    return ".".join(str(part) for part in max(floors)) if floors else None


def _levels(file: str) -> list[tuple[int, int]]:
    """Return the glibc levels that a wheel's compressed platform tag names (PEP 425)."""
    if not file.endswith(".whl"):
        return []
    tags = file.removesuffix(".whl").rsplit("-", 1)[1].split(".")
    matches = [match for tag in tags if (match := _MANYLINUX.fullmatch(tag))]
    return [_LEGACY.get(match[1]) or (int(match[2]), int(match[3])) for match in matches]


def make_pins(
    row: str, python: str, arch: str, *, pins: tuple[Pin, ...], build: tuple[Pin, ...], made: dt.date
) -> Pins:
    """Sort the closure and compute its header."""
    ordered = tuple(sorted(pins, key=lambda pin: pin.name))
    ordered_build = tuple(sorted(build, key=lambda pin: pin.name))
    header = PinsHeader(
        row=row,
        python=python,
        arch=arch,
        digest=digest_of(ordered, ordered_build),
        glibc=glibc_floor(tuple(pin.file for pin in ordered)),
        packages=len(ordered),
        download_bytes=sum(pin.size for pin in ordered),
        sources=tuple(sorted({pin.source for pin in ordered})),
        made=made,
    )
    return Pins(header=header, pins=ordered, build=ordered_build)


def render_pins(pins: Pins) -> str:
    """Write the pins as TOML: the header first, then one line a package, so that a diff names packages."""
    head = pins.header
    lines = [
        "# Made by `verl-env matrix resolve`; not for editing. One file a package; a hash says what it is.",
        f'row = "{head.row}"',
        f'python = "{head.python}"',
        f'arch = "{head.arch}"',
        f'digest = "{head.digest}"',
        *([f'glibc = "{head.glibc}"'] if head.glibc else []),
        f"packages = {head.packages}",
        f"download_bytes = {head.download_bytes}",
        f"sources = [{', '.join(_quoted(source) for source in head.sources)}]",
        f"made = {head.made.isoformat()}",
        f"installed_bytes = {head.installed_bytes}",
        f"installed_files = {head.installed_files}",
    ]
    for key, group in (("build", pins.build), ("pins", pins.pins)):
        lines += ["", f"{key} = [", *(f"  {_rendered(pin)}," for pin in group), "]"]
    return "\n".join(lines) + "\n"


def _rendered(pin: Pin) -> str:
    source = f", source = {_quoted(pin.source)}" if pin.source != "default" else ""
    return (
        f"{{ name = {_quoted(pin.name)}, version = {_quoted(pin.version)}, file = {_quoted(pin.file)}, "
        f"size = {pin.size}, sha256 = {_quoted(pin.sha256)}{source} }}"
    )


def _quoted(text: str) -> str:
    """Quote a name, version, file name or hash; none of them may hold a quote or a backslash."""
    if '"' in text or "\\" in text or not text.isprintable():
        raise ValueError(f"not a plain name: {text!r}")
    return f'"{text}"'
