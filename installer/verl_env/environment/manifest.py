"""The manifest of an environment: every file in it, one line each, in the order in which a walk meets them.

It is text: `D`, a folder; then its files, `F`, size, mtime in ns, `x` or `-` (executable), package, sha256, name; and
its links, `L`, package, target, name; fields are separated by tabs. Packages are numbers into the list of the first
line. Since a walk meets the same order, neither writing nor comparing ever holds more than one folder of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NAME = "verl-env-manifest.txt"
SCHEMA = 1
NOBODY = -1  # the package of what venv, verl-env or an import made
_BLOCK = 1 << 18  # bytes read at once
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class ManifestError(ValueError):
    """A manifest that cannot be read; the message says why."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One file (or link, when `target` is set) of a folder. Not frozen: there are 100,000 of them, and it shows.

    `size` is in bytes and `mtime` in nanoseconds since 1970; `package` is a number, or NOBODY; `sha256` is bare hex.
    """

    name: str
    size: int = 0
    mtime: int = 0
    executable: bool = False
    package: int = NOBODY
    sha256: str = ""
    target: str | None = None


def render_manifest(packages: Iterable[str], folders: Iterable[tuple[str, Iterable[Entry]]]) -> Iterator[str]:
    """Yield the manifest's lines; `folders` are relative to the environment, in the order of `walk_tree`."""
    yield json.dumps({"schema": SCHEMA, "packages": list(packages)}, ensure_ascii=False) + "\n"
    for folder, entries in folders:
        yield f"D\t{_escaped(folder)}\n"
        for it in entries:
            name = _escaped(it.name)
            if it.target is not None:
                yield f"L\t{it.package}\t{_escaped(it.target)}\t{name}\n"
            else:
                mode = "x" if it.executable else "-"
                yield f"F\t{it.size}\t{it.mtime}\t{mode}\t{it.package}\t{it.sha256}\t{name}\n"


def read_packages(path: Path) -> tuple[str, ...]:
    """Return the names of the packages that the lines number; raises ManifestError."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return _packages(stream.readline())


def _packages(line: str) -> tuple[str, ...]:
    try:
        head = json.loads(line)
        if head["schema"] != SCHEMA:
            raise ManifestError(f"its schema is {head['schema']}; this verl-env reads {SCHEMA}")
        return tuple(head["packages"])
    except (ValueError, KeyError, TypeError) as err:
        raise ManifestError(f"its first line cannot be read: {err}") from err


def read_folders(path: Path) -> Iterator[tuple[str, list[Entry]]]:
    """Yield each folder with its entries, one folder in memory at a time; raises ManifestError."""
    folder: str | None = None
    entries: list[Entry] = []
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        _packages(stream.readline())
        for number, line in enumerate(stream, start=2):
            fields = line.rstrip("\n").split("\t")
            try:
                if fields[0] == "D":
                    if folder is not None:
                        yield folder, entries
                    folder, entries = _plain(fields[1]), []
                else:
                    entries.append(_entry(fields))
            except (ValueError, IndexError) as err:
                raise ManifestError(f"its line {number} cannot be read: {err}") from err
    if folder is not None:
        yield folder, entries


def _entry(fields: list[str]) -> Entry:
    """Read one line's fields."""
    if fields[0] == "F":
        _, size, mtime, mode, package, sha256, name = fields
        return Entry(
            name=_plain(name),
            size=int(size),
            mtime=int(mtime),
            executable=mode == "x",
            package=int(package),
            sha256=sha256,
        )
    kind, package, target, name = fields
    if kind != "L":
        raise ValueError(f"unknown kind `{kind}`")
    return Entry(name=_plain(name), package=int(package), target=_plain(target))


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _plain(text: str) -> str:
    """Undo `_escaped`."""
    if "\\" not in text:
        return text
    marks = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
    rest = iter(text)
    return "".join(marks[next(rest)] if char == "\\" else char for char in rest)


def file_sha256(path: str) -> str:
    """Return a file's sha256 in hex, read in blocks; the reading and the hashing let other threads run."""
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while block := os.read(handle, _BLOCK):
            digest.update(block)
    finally:
        os.close(handle)
    return digest.hexdigest()
