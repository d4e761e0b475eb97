"""One run of bytes over one file or numbered pieces (`NAME.001`, `NAME.002`, …): `cat NAME.*` gives the whole again."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from verl_env.bundle.layout import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERED = re.compile(r"(?P<base>.+)\.(?P<number>\d{3,})")
PART = ".part"


class PieceWriter:
    """Appends to pieces of `limit` bytes, or to one file; all have the suffix `.part` until `finish`."""

    def __init__(self, target: Path, limit: int | None) -> None:
        """Take up what an interrupted writer left."""
        self.target, self.limit = target, limit
        self.size = 0
        for path in self._paths():
            part = _part(path)
            if not part.is_file():
                break
            self.size += part.stat().st_size
            if part.stat().st_size != limit:
                break

    def _paths(self) -> Iterator[Path]:
        """Yield the names of the pieces in order."""
        if self.limit is None:
            yield self.target
            return
        number = 0
        while True:
            number += 1
            yield piece_of(self.target, number)

    def append(self, data: bytes) -> None:
        """Write at the end, over as many pieces as it takes."""
        view = memoryview(data)
        while view:
            path, at = self._place(self.size)
            room = len(view) if self.limit is None else min(len(view), self.limit - at)
            with _part(path).open("ab") as stream:
                stream.write(view[:room])
            self.size += room
            view = view[room:]

    def _place(self, offset: int) -> tuple[Path, int]:
        if self.limit is None:
            return self.target, offset
        return piece_of(self.target, offset // self.limit + 1), offset % self.limit

    def cut(self, size: int) -> None:
        """Forget everything after the first `size` bytes."""
        for number, path in enumerate(self._paths()):
            part = _part(path)
            if not part.is_file():
                break
            keep = size if self.limit is None else min(self.limit, max(0, size - number * self.limit))
            if keep == 0:
                part.unlink()
            elif part.stat().st_size > keep:
                os.truncate(part, keep)
        self.size = min(self.size, size)

    def parts(self) -> tuple[Path, ...]:
        """Return the unfinished files that are there."""
        found = []
        for path in self._paths():
            if not _part(path).is_file():
                break
            found.append(_part(path))
        return tuple(found)

    def finish(self) -> tuple[Path, ...]:
        """Flush everything to disk, give the files their names, and return those; older pieces beyond them go."""
        for part in self.parts():
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
        made = []
        for part in self.parts():
            path = part.with_name(part.name.removesuffix(PART))
            part.replace(path)
            made.append(path)
        number = len(made) + 1
        while self.limit is not None and piece_of(self.target, number).is_file():
            piece_of(self.target, number).unlink()
            number += 1
        return tuple(made)


class PieceReader:
    """Reads at any offset of a file or of pieces that stand side by side."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        """Open them all; raises BundleError when one cannot be read."""
        self.paths = paths
        try:
            self._streams = [path.open("rb", buffering=0) for path in paths]
            self._sizes = [path.stat().st_size for path in paths]
        except OSError as err:
            raise BundleError(f"`{err.filename}` cannot be read: {err.strerror}") from err
        self.size = sum(self._sizes)

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer at the end."""
        found = []
        for stream, size in zip(self._streams, self._sizes, strict=True):
            if count <= 0:
                break
            if offset >= size:
                offset -= size
                continue
            data = os.pread(stream.fileno(), min(count, size - offset), offset)
            found.append(data)
            count -= len(data)
            offset = 0
        return b"".join(found)

    def close(self) -> None:
        """Close every file."""
        for stream in self._streams:
            stream.close()


def piece_of(target: Path, number: int) -> Path:
    """Return the name of a piece; numbers start at 1."""
    return target.with_name(f"{target.name}.{number:03d}")


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def find_pieces(given: Path) -> tuple[Path, ...]:
    """Return the files of a bundle, in order: one file, all pieces beside the one that is named, or a folder's.

    Raises BundleError when there is none, several, or one number is missing.
    """
    if given.is_dir():
        return _of_folder(given)
    match = _NUMBERED.fullmatch(given.name)
    if match and (given.is_file() or not given.with_name(match["base"]).is_file()):
        return _numbered(given.with_name(match["base"]))
    if given.is_file():
        return (given,)
    return _numbered(given)


def _of_folder(folder: Path) -> tuple[Path, ...]:
    """Find the one bundle of a folder."""
    names = {it.name for it in folder.iterdir() if it.is_file() and not it.name.endswith(PART)}
    bases = {match["base"] for name in names if (match := _NUMBERED.fullmatch(name))}
    bases |= {name for name in names if name.endswith((".tar", ".tar.zst"))}
    if len(bases) != 1:
        what = f"{len(bases)} bundles are in `{folder}`" if bases else f"no bundle is in `{folder}`"
        raise BundleError(what, details=tuple(sorted(bases)), hint="name the file, or the first of its pieces")
    return find_pieces(folder / bases.pop())


def _numbered(base: Path) -> tuple[Path, ...]:
    """Return every piece beside each other, first to last."""
    found = {}
    if base.parent.is_dir():
        for path in base.parent.iterdir():
            match = _NUMBERED.fullmatch(path.name)
            if match and match["base"] == base.name:
                found[int(match["number"])] = path
    if not found:
        raise BundleError(f"no bundle is at `{base}`", hint="name the file, the first of its pieces, or their folder")
    missing = [number for number in range(1, max(found) + 1) if number not in found]
    if missing:
        names = ", ".join(piece_of(base, number).name for number in missing[:5])
        raise BundleError(f"pieces are missing: {names}", hint="carry them too, into the same folder")
    return tuple(found[number] for number in sorted(found))
