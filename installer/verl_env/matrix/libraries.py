"""Shared libraries of a package: what their device code was compiled for. Reading is pyelftools'."""

from __future__ import annotations

import mmap
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from packaging.version import Version

from verl_env.matrix.device_code import Unit, device_code, in_order, ordinary

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One shared library of a wheel, and how many source files were compiled for the same architectures."""

    file: str
    needed: tuple[str, ...]
    glibc: Version | None
    units: Counter[Unit]

    @property
    def binaries(self) -> tuple[str, ...]:
        """Return every architecture that it has binaries for."""
        return in_order({arch for unit in self.units for arch in unit.binaries})

    @property
    def ptx(self) -> tuple[str, ...]:
        """Return every architecture that it has PTX for."""
        return in_order({arch for unit in self.units for arch in unit.ptx})


def read_library(path: Path, file: str) -> Library:
    """Read one ELF file; code that awaits another link (`__nv_relfatbin`) cannot run and is left out."""
    from elftools.elf.elffile import ELFFile

    units: Counter[Unit] = Counter()
    needed: list[str] = []
    glibc: list[Version] = []
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for section in ELFFile(stream).iter_sections():
            if section.name == ".nv_fatbin" and section["sh_type"] != "SHT_NOBITS":
                start = section["sh_offset"]
                with memoryview(data)[start : start + section["sh_size"]] as code:  # headers are read, and no more
                    units.update(device_code(code))
            elif section.name == ".dynamic":
                needed = [tag.needed for tag in cast(Any, section).iter_tags("DT_NEEDED")]
            elif section.name == ".gnu.version_r":
                names = [aux.name for _, found in cast(Any, section).iter_versions() for aux in found]
                glibc = [Version(name[6:]) for name in names if re.fullmatch(r"GLIBC_\d[\d.]*", name)]
    return Library(file=file, needed=tuple(needed), glibc=max(glibc, default=None), units=units)


def built_for(libraries: Iterable[Library]) -> Unit | None:
    """Return what a package was compiled for: the ordinary files of its library with the most; None without any."""
    coded = [it for it in libraries if it.units]
    main = max(coded, key=lambda it: (len(it.binaries), it.units.total()), default=None)
    return ordinary(main.units) if main else None
