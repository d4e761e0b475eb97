"""ELF files, as far as the dynamic loader looks at them. Reading is pyelftools'; nothing is loaded or run."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"\x7fELF"
DEVICE_CODE = 190  # EM_CUDA: for a GPU, not for the loader
_RELOCATABLE = "ET_REL"
_WEAK = 2  # VER_FLG_WEAK: the loader goes on without that version
_SYMBOL = {64: struct.Struct("<IBBHQQ"), 32: struct.Struct("<IIIBBH")}
_GLOBAL, _WEAK_BINDING = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """One file that the loader takes: `path` is where it really lies.

    `needed` are the sonames of DT_NEEDED; `rpath` and `runpath` as written, with `$ORIGIN`. `wants` has the symbol
    versions it needs, as (library, version); `defines` those that it has for others.
    """

    path: str
    machine: int = 0
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    wants: tuple[tuple[str, str], ...] = ()
    defines: frozenset[str] = frozenset()


class ElfError(Exception):
    """A file that begins as an ELF file and cannot be read as one."""


def read_elf(path: Path) -> Elf | None:
    """Return what the loader would see; None for what it does not take: device code, object files, static programs."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as stream:
            file = ELFFile(stream)
            machine = _machine(path)
            if file.header["e_type"] == _RELOCATABLE or machine == DEVICE_CODE:
                return None
            tags = _tags(file)
            if tags is None:
                return None
            return Elf(
                path=str(path),
                machine=machine,
                soname=next(iter(tags["DT_SONAME"]), ""),
                needed=tuple(tags["DT_NEEDED"]),
                rpath=_folders(tags["DT_RPATH"]),
                runpath=_folders(tags["DT_RUNPATH"]),
                wants=_wanted(file),
                defines=_defined(file),
            )
    except (ELFError, OSError, ValueError, KeyError, struct.error, UnicodeDecodeError) as err:
        raise ElfError(f"{type(err).__name__}: {err}") from err


def is_elf(path: Path) -> bool:
    """Whether a file begins as an ELF file for a processor does."""
    try:
        with path.open("rb") as stream:
            start = stream.read(20)
    except OSError:
        return False
    return start[:4] == MAGIC and int.from_bytes(start[18:20], "little") != DEVICE_CODE


def read_symbols(path: Path) -> tuple[set[str], set[str]]:
    """Return the names of a file's undefined symbols that it cannot do without, and of those that it has for others.

    Unpacked here and not one by one by pyelftools, which takes 20 times as long: torch alone has 280,000.
    """
    from elftools.elf.elffile import ELFFile

    undefined: set[str] = set()
    exported: set[str] = set()
    with path.open("rb") as stream:
        file = ELFFile(stream)
        table: Any = file.get_section_by_name(".dynsym")
        if table is None:
            return undefined, exported
        names: bytes = file.get_section(table["sh_link"]).data()
        for name, bind, section in _unpack(table.data(), file.elfclass):
            if bind not in (_GLOBAL, _WEAK_BINDING):
                continue
            text = names[name : names.index(b"\0", name)].decode("utf-8", "replace")
            if section:
                exported.add(text)
            elif bind == _GLOBAL:
                undefined.add(text)
    return undefined, exported


def _unpack(data: bytes, bits: int) -> Iterator[tuple[int, int, int]]:
    """Yield each symbol's name offset, binding and section number."""
    for entry in _SYMBOL[bits].iter_unpack(data):
        if bits == 64:  # noqa: PLR2004 - the order of the fields differs
            name, info, _, section = entry[:4]
        else:
            name, info, section = entry[0], entry[3], entry[5]
        yield name, info >> 4, section


def _machine(path: Path) -> int:
    with path.open("rb") as stream:
        return int.from_bytes(stream.read(20)[18:20], "little")


def _tags(file: Any) -> dict[str, list[str]] | None:
    """Return the dynamic section's texts, or None for a file without one."""
    found: dict[str, list[str]] = {name: [] for name in ("DT_NEEDED", "DT_SONAME", "DT_RPATH", "DT_RUNPATH")}
    dynamic = next(file.iter_segments("PT_DYNAMIC"), None)
    if dynamic is None:
        return None
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag in found:
            found[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
    return found


def _folders(texts: list[str]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(":") if part)


def _wanted(file: Any) -> tuple[tuple[str, str], ...]:
    section = file.get_section_by_name(".gnu.version_r")
    if section is None:
        return ()
    return tuple(
        (version.name, part.name)
        for version, parts in section.iter_versions()
        for part in parts
        if not part.entry.vna_flags & _WEAK
    )


def _defined(file: Any) -> frozenset[str]:
    section = file.get_section_by_name(".gnu.version_d")
    if section is None:
        return frozenset()
    return frozenset(part.name for _, parts in section.iter_versions() for part in parts)
