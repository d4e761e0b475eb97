"""A stub of the driver's library, for linkers: every function of cuda.h, and none that does anything. Pure.

flashinfer, torch extensions and others link with `-lcuda`. The driver brings libcuda.so.1, often without the name that
a linker looks for, and a machine without a GPU has neither. NVIDIA's own toolkits hold such a stub in `lib64/stubs`; no
wheel does. As with theirs, a program that is started with it gets CUDA_ERROR_STUB_LIBRARY from every call.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

SONAME = "libcuda.so.1"
# machine -> ELF's number for it (gABI, e_machine), and `return 34` in its code.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("b822000000c3")),  # mov eax, 34; ret
    "aarch64": (183, bytes.fromhex("40048052c0035fd6")),  # mov w0, #34; ret
}
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(r"^\s*#\s*define\s+cu[A-Z]\w*\s+(cu[A-Z]\w*)\s*$", re.MULTILINE)
_PER_THREAD = re.compile(r"\b__CUDA_API_(PTDS|PTSZ)\(\s*(cu[A-Z]\w*)\s*\)")
_PAGE = 0x10000  # the largest page of any machine above
_HEADER, _PROGRAM, _SECTION, _SYMBOL = 64, 56, 64, 24  # bytes of ELF64's structures
_PROGRAMS = 4  # headers of them
_FUNCTION = 0x12  # STB_GLOBAL, STT_FUNC
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551  # p_type; without the last the loader wants a stack that can be run
_READ_RUN, _READ_WRITE = 5, 6  # p_flags


def functions_of(header: str) -> tuple[str, ...]:
    """Return the names of a cuda.h's functions, those of other versions and of per-thread streams among them."""
    found = {*_DECLARED.findall(header), *_RENAMED.findall(header)}
    found |= {f"{name}_{kind.lower()}" for kind, name in _PER_THREAD.findall(header)}
    return tuple(sorted(found))


def render_stub(names: tuple[str, ...], machine: str) -> bytes:
    """Return a shared library (ELF64, little endian) that has these functions, all of them `return 34`."""
    number, code = _MACHINES[machine]
    text = b"\0".join([b"", SONAME.encode(), *(name.encode() for name in names), b""])
    starts = _starts(names)
    hashes = struct.pack(f"<{4 + len(names)}I", 1, len(names) + 1, bool(names), 0, *_chain(len(names)))
    sizes = (_SYMBOL * (len(names) + 1), len(text), len(hashes), len(code))
    places = _laid_out(_HEADER + _PROGRAMS * _PROGRAM, sizes)
    symbols = bytes(_SYMBOL) + b"".join(
        struct.pack("<IBBHQQ", start, _FUNCTION, 0, 4, places[3], len(code)) for start in starts
    )
    first = _join(places, (symbols, text, hashes, code))
    at = -(-len(first) // _PAGE) * _PAGE
    # DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    tags = ((14, 1), (4, places[2]), (5, places[1]), (6, places[0]), (10, len(text)), (11, _SYMBOL), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    names_at = at + len(dynamic)
    sections, section_names = _sections(places, sizes, (at, len(dynamic)), names_at)
    table_at = -(-(names_at + len(section_names)) // 8) * 8
    head = _head(number, table_at, len(sections)) + _programs(len(first), at, len(dynamic))
    body = head + first[len(head) :].ljust(at - len(head), b"\0") + dynamic + section_names
    return body.ljust(table_at, b"\0") + b"".join(sections)


def _starts(names: tuple[str, ...]) -> list[int]:
    """Return where each name stands in the table of strings, behind an empty one and SONAME."""
    at, starts = len(SONAME) + 2, []
    for name in names:
        starts.append(at)
        at += len(name) + 1
    return starts


def _chain(count: int) -> list[int]:
    """Return the one chain of the hash table: each symbol leads to the next, the last to none."""
    return [*range(2, count + 1), 0] if count else []


def _laid_out(start: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return offsets of parts of these sizes, each at a multiple of 8."""
    places = []
    for size in sizes:
        start = -(-start // 8) * 8
        places.append(start)
        start += size
    return tuple(places)


def _join(places: tuple[int, ...], parts: tuple[bytes, ...]) -> bytes:
    """Put parts at their offsets."""
    whole = b""
    for place, part in zip(places, parts, strict=True):
        whole = whole.ljust(place, b"\0") + part
    return whole


@dataclass(frozen=True, slots=True)
class _Section:
    """One section header's own words: name, sh_type, sh_flags, sh_link, sh_info, sh_entsize."""

    name: str
    kind: int
    flags: int
    link: int = 0
    info: int = 0
    entry: int = 0


_SECTIONS = (
    _Section(".dynsym", 11, 2, 2, 1, _SYMBOL),
    _Section(".dynstr", 3, 2),
    _Section(".hash", 5, 2, 1, 0, 4),
    _Section(".text", 1, 6),
    _Section(".dynamic", 6, 3, 2, 0, 16),
    _Section(".shstrtab", 3, 0),
)


def _sections(
    places: tuple[int, ...], sizes: tuple[int, ...], dynamic: tuple[int, int], names_at: int
) -> tuple[list[bytes], bytes]:
    """Return the section headers, the empty one first, and the table of their names."""
    names = b"\0" + b"".join(it.name.encode() + b"\0" for it in _SECTIONS)
    where = [*zip(places, sizes, strict=True), dynamic, (names_at, len(names))]
    headers = [bytes(_SECTION)]
    for it, (place, size) in zip(_SECTIONS, where, strict=True):
        address = place if it.flags else 0
        name = names.index(b"\0" + it.name.encode() + b"\0") + 1
        headers.append(
            struct.pack("<IIQQQQIIQQ", name, it.kind, it.flags, address, place, size, it.link, it.info, 8, it.entry)
        )
    return headers, names


def _head(machine: int, table_at: int, sections: int) -> bytes:
    """Return the ELF header of a shared library."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    sizes = (_HEADER, _PROGRAM, _PROGRAMS, _SECTION, sections, sections - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, table_at, 0, *sizes)


def _programs(first: int, at: int, dynamic: int) -> bytes:
    """Return the program headers: what is read and run, what the loader writes to, the dynamic section, the stack."""
    rows = (
        (_LOAD, _READ_RUN, 0, first, _PAGE),
        (_LOAD, _READ_WRITE, at, dynamic, _PAGE),
        (_DYNAMIC, _READ_WRITE, at, dynamic, 8),
        (_STACK, _READ_WRITE, 0, 0, 16),
    )
    return b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, place, place, place, size, size, align)
        for kind, flags, place, size, align in rows
    )
