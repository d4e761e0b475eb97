"""A finished environment's manifest: what its wheels' RECORDs say of each file, and the hashes of everything else.

uv compares each wheel with its pinned hash before it unpacks it, so a RECORD's sha256 is as good as the pin. RECORD
lists no bytecode, no launcher and nothing that venv or verl-env wrote: those are hashed here, as they are.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import posixpath
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from verl_env.environment.manifest import NAME, NOBODY, Entry, file_sha256, render_manifest
from verl_env.environment.tree import source_of, walk_tree
from verl_env.environment.workers import Workers
from verl_env.files import writing_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Not in the manifest: itself, and the receipt, which names its digest. Their unfinished siblings neither.
_OUTSIDE = (NAME, "verl-env-receipt.json")
_WAITING = 64  # folders whose hashes may still be under way; bounds memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found: `digest` of the manifest as written, files, and their bytes without those of links."""

    digest: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that is not what its wheel's RECORD says, though its wheel was checked: a cache that was touched."""

    package: str
    path: str
    what: str


class DamagedError(Exception):
    """Files that are missing, or of another size than their RECORD says."""

    def __init__(self, damages: tuple[Damage, ...]) -> None:
        """Keep what was found, in the order of paths."""
        super().__init__(f"{len(damages)} files are not what their wheels' RECORD says")
        self.damages = damages


@dataclass(slots=True, kw_only=True)
class Recorded:
    """What RECORDs say: packages by number, and (package, size or None, digest) by path in the environment."""

    packages: list[str]
    files: dict[str, tuple[int, int | None, bytes]]


def read_records(folder: Path) -> Recorded:
    """Read the RECORD of every installed package; raises DamagedError when one is missing or leads outside."""
    packages: list[str] = []
    files: dict[str, tuple[int, int | None, bytes]] = {}
    for info in sorted(folder.glob("lib/python*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        packages.append(f"{canonicalize_name(name)} {version}")
        base = info.parent.relative_to(folder).as_posix()
        try:
            with (info / "RECORD").open(encoding="utf-8", newline="") as stream:
                for row in csv.reader(stream):
                    _take(row, base, len(packages) - 1, packages[-1], files)
        except (OSError, ValueError) as err:
            raise DamagedError(
                (Damage(package=packages[-1], path=f"{base}/{info.name}/RECORD", what=str(err)),)
            ) from err
    return Recorded(packages=packages, files=files)


def _take(
    row: list[str], base: str, number: int, package: str, files: dict[str, tuple[int, int | None, bytes]]
) -> None:
    """Take one line of a RECORD; bytecode is left to the survey, since compiling it anew changes it."""
    path, hashed, size = row
    where = posixpath.normpath(posixpath.join(base, path))
    if where.startswith(("../", "/")):
        raise DamagedError((Damage(package=package, path=path, what="its RECORD leads outside of the environment"),))
    if hashed.startswith("sha256=") and not where.endswith(".pyc"):
        digest = base64.urlsafe_b64decode(hashed.removeprefix("sha256=") + "=")
        # Two wheels may claim one path with different contents, where their lock allows it: neither RECORD decides.
        others = files.get(where, (number, None, digest))[2] != digest
        files[where] = (number, None, b"") if others else (number, int(size) if size else None, digest)
    else:
        files[where] = number, None, b""


def survey(folder: Path, *, trust_disk: frozenset[str] = frozenset()) -> Survey:
    """Write the manifest of a finished environment; raises DamagedError when RECORDs are not kept.

    What `trust_disk` names is taken as it is on disk: freshly fetched, hash-checked wheels whose RECORD is wrong.
    """
    recorded = read_records(folder)
    seen = _Seen(folder, recorded=recorded, trusted=trust_disk)
    digest = hashlib.sha256()
    with writing_atomically(folder / NAME) as stream:
        for line in render_manifest(recorded.packages, seen.folders()):
            data = line.encode(errors="surrogateescape")
            digest.update(data)
            stream.write(data)
        damages = (*seen.damages, *seen.missing())
        if damages:
            raise DamagedError(damages)
    return Survey(digest=f"sha256:{digest.hexdigest()}", files=seen.count, bytes=seen.bytes)


@dataclass(slots=True, kw_only=True)
class _Folder:
    """One folder, and its files that have to be hashed, until they are."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    hashing: list[tuple[Entry, str]] = field(default_factory=list)


class _Seen:
    """One walk's findings."""

    def __init__(self, root: Path, *, recorded: Recorded, trusted: frozenset[str]) -> None:
        self.root = root
        self.recorded = recorded
        self.trusted = trusted
        self.damages: list[Damage] = []
        self.matched = 0
        self.count = 0
        self.bytes = 0

    def folders(self) -> Iterator[tuple[str, list[Entry]]]:
        """Yield each folder's entries; hashes of what no RECORD vouches for are computed a few folders ahead."""
        ahead: deque[_Folder] = deque()
        with Workers(_hash) as workers:
            for name, found in walk_tree(str(self.root)):
                folder = self._folder(name, found)
                ahead.append(folder)
                if folder.hashing:
                    workers.give(folder)
                while len(ahead) > _WAITING:
                    yield _finished(ahead.popleft(), workers)
            while ahead:
                yield _finished(ahead.popleft(), workers)

    def _folder(self, name: str, found: list[os.DirEntry[str]]) -> _Folder:
        """Return what is in a folder, and what of it has to be hashed."""
        folder = _Folder(name=name)
        for item in found:
            if not name and item.name.lstrip(".").startswith(_OUTSIDE):
                continue
            entry = self._entry(name, item)
            folder.entries.append(entry)
            if entry.target is None and not entry.sha256:
                folder.hashing.append((entry, item.path))
        return folder

    def _entry(self, folder: str, item: os.DirEntry[str]) -> Entry:
        """Return what a file or link is, with its RECORD's hash when there is one."""
        path = f"{folder}/{item.name}" if folder else item.name
        known = self.recorded.files.get(path)
        self.matched += known is not None
        number, size, digest = known or (self._owner(folder, item.name), None, b"")
        self.count += 1
        if item.is_symlink():
            return Entry(name=item.name, package=number, target=os.readlink(item.path))
        about = item.stat(follow_symlinks=False)
        self.bytes += about.st_size
        if size is not None and size != about.st_size:
            package = self.recorded.packages[number]
            if package not in self.trusted:
                what = f"{about.st_size} bytes, and its wheel's RECORD says {size}"
                self.damages.append(Damage(package=package, path=path, what=what))
            digest = b""
        return Entry(
            name=item.name,
            size=about.st_size,
            mtime=about.st_mtime_ns,
            executable=bool(about.st_mode & 0o100),
            package=number,
            sha256=digest.hex(),
        )

    def _owner(self, folder: str, name: str) -> int:
        """Return the package of a cache file: the one of its source, in the folder above its `__pycache__`."""
        above, _, last = folder.rpartition("/")
        source = source_of(name) if last == "__pycache__" else None
        return self.recorded.files.get(f"{above}/{source}", (NOBODY, None, b""))[0] if source else NOBODY

    def missing(self) -> Iterator[Damage]:
        """Yield what RECORDs name and the walk did not meet."""
        if self.matched == len(self.recorded.files):
            return
        for path, (number, _, _) in self.recorded.files.items():
            package = self.recorded.packages[number]
            if package not in self.trusted and not os.path.lexists(self.root / path):
                yield Damage(package=package, path=path, what="missing")


def _hash(folder: _Folder) -> None:
    """Fill in the hashes of one folder's files: a job for each file would cost more than the hashing."""
    for entry, path in folder.hashing:
        entry.sha256 = file_sha256(path)


def _finished(folder: _Folder, workers: Workers[_Folder]) -> tuple[str, list[Entry]]:
    """Return a folder when its hashes are there; others may become done while it is waited for."""
    while folder.hashing:
        workers.take().hashing = []
    return folder.name, folder.entries
