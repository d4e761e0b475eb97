"""Device code as the CUDA compiler lays it into a library: fat binaries, and what each says of itself. Pure."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

# A fat binary: header (magic, version, header size, payload size), then entries (kind, version, header size,
# payload size, … arch at 28, flags at 40). cuobjdump 13.5 agrees on torch 2.11.0 and vLLM 0.24.0, except that
# it does not show the `f`.
FATBIN = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQ12xI8xQ")
MAGIC = 0xBA55ED50
PTX, BINARY = 1, 2
SPECIFIC = ((0x100000, "a"), (0x200000, "f"))

ELF_HEADER = 64
EM_CUDA = (190).to_bytes(2, "little")
ABI_OF_CUDA_13 = 8

# The ELF version of a device binary is its toolkit's, times ten, up to CUDA 12.9.
ELF_VERSIONS = range(110, 130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one source file was compiled for: a fat binary of its own in the library."""

    binaries: tuple[str, ...]
    ptx: tuple[str, ...]


def device_code(data: bytes | memoryview) -> Iterator[Unit]:
    """Yield what each fat binary of an .nv_fatbin section holds."""
    at = 0
    while at + FATBIN.size <= len(data):
        magic, _, header, payload = FATBIN.unpack_from(data, at)
        if magic != MAGIC:
            at += 8
            continue
        found: dict[int, set[str]] = {PTX: set(), BINARY: set()}
        entry, end = at + header, at + header + payload
        while entry + ENTRY.size <= end:
            kind, _, size, length, arch, flags = ENTRY.unpack_from(data, entry)
            suffix = "".join(letter for bit, letter in SPECIFIC if flags & bit)
            found.setdefault(kind, set()).add(f"{arch // 10}.{arch % 10}{suffix}")
            entry += size + length
        yield Unit(binaries=in_order(found[BINARY]), ptx=in_order(found[PTX]))
        at = -(-end // 8) * 8


def cubin_architecture(header: bytes) -> str | None:
    """Return what a .cubin file was compiled for, from its first 64 bytes; None for what is none.

    Since CUDA 13 (ABI version 8) the number lies a byte further on in e_flags.
    """
    if len(header) < ELF_HEADER or header[:4] != b"\x7fELF" or header[18:20] != EM_CUDA:
        return None
    flags: int = struct.unpack_from("<I", header, 48)[0]
    number = flags >> 8 & 0xFF if header[8] >= ABI_OF_CUDA_13 else flags & 0xFF
    return f"{number // 10}.{number % 10}"


def ordinary(units: Counter[Unit]) -> Unit:
    """Return what the ordinary source files of a library were compiled for: it is what the package runs on.

    They share the build's own list of architectures. Special kernels have lists of their own, shorter ones
    (vLLM 0.22: 18 files only for Ampere) or rarer ones (torch 2.11: 59 of 444 also for sm_103a), so the list
    wins that most architectures of most files are from.
    """
    return max(units, key=lambda unit: (units[unit] * len(unit.binaries), unit.binaries, unit.ptx))


def in_order(architectures: Iterable[str]) -> tuple[str, ...]:
    """Sort `10.0` behind `9.0a`."""
    return tuple(sorted(architectures, key=lambda arch: (Version(arch.rstrip("af")), arch)))


def toolkit_of(binary: bytes) -> str | None:
    """Return the toolkit that made a device binary: a note names it since 13.0, the ELF version before."""
    if note := re.search(rb"Cuda compilation tools, release (\d+\.\d+)", binary):
        return note[1].decode()
    version: int = struct.unpack_from("<I", binary, 20)[0]
    return f"{version // 10}.{version % 10}" if version in ELF_VERSIONS else None
