"""What a compiled library asks for and holds: the libraries it needs, its glibc, its device code. Pure: ELF, read.

A wheel that was compiled has its libraries, and nothing else says on which machines they run.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.device_code import device_code, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"  # 64 bit, little endian: x86_64 and aarch64
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")
_NEEDED = 1  # DT_NEEDED
_GLIBC = re.compile(rb"\0GLIBC_(2\.\d+(?:\.\d+)?)(?=\0)")
_CUDART = re.compile(r"libcudart\.so\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One library: the names of those it needs, the oldest glibc it loads on, the architectures of its device code."""

    needed: tuple[str, ...]
    glibc: str | None
    architectures: tuple[str, ...]

    @property
    def cuda_majors(self) -> tuple[str, ...]:
        """The majors of the CUDA runtimes that it is linked with."""
        return tuple(match[1] for name in self.needed if (match := _CUDART.match(name)))


def read_library(data: bytes) -> Library | None:
    """Read a library; None for what is none (a linker script has the same name, and is text)."""
    if not data.startswith(_MAGIC):
        return None
    sections = dict(_sections(data))
    strings = sections.get(".dynstr", b"")
    glibc = [Version(it.decode()) for it in _GLIBC.findall(strings)]
    units = device_code(sections.get(".nv_fatbin", b""))
    return Library(
        needed=tuple(_needed(sections.get(".dynamic", b""), strings)),
        glibc=str(max(glibc)) if glibc else None,
        architectures=in_order(
            {arch for unit in units for arch in (*unit.binaries, *(f"{it}+PTX" for it in unit.ptx))}
        ),
    )


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each section's name and content; what has no content in the file is empty."""
    head = _HEADER.unpack_from(data)
    table, size, count, names_at = head[5], head[10], head[11], head[12]
    rows = [_SECTION.unpack_from(data, table + number * size) for number in range(count)]
    names = rows[names_at]
    for row in rows:
        start = names[4] + row[0]
        name = data[start : data.index(b"\0", start)].decode(errors="replace")
        yield name, data[row[4] : row[4] + row[5]] if row[1] != 8 else b""  # noqa: PLR2004 - SHT_NOBITS


def _needed(dynamic: bytes, strings: bytes) -> Iterator[str]:
    for at in range(0, len(dynamic) - _DYNAMIC.size + 1, _DYNAMIC.size):
        tag, value = _DYNAMIC.unpack_from(dynamic, at)
        if tag == _NEEDED:
            yield strings[value : strings.index(b"\0", value)].decode(errors="replace")
