"""An environment held against its manifest: what is missing, changed or extra.

Presence, kind and size are always compared, and the hash of any file whose mtime moved; every hash with `deep`. Nothing
is written. What Python and numba leave in `__pycache__` for a source that belongs there is `grown`, and no fault: it
is made again whenever it is not there. Anything else that appeared is extra: an environment does not change.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.environment import manifest, receipt
from verl_env.environment.base import changes_of
from verl_env.environment.manifest import NOBODY, Entry, ManifestError, file_sha256
from verl_env.environment.tree import order_of, source_of, walk_tree
from verl_env.environment.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MISSING, CHANGED, EXTRA = "missing", "changed", "extra"
_BATCH_BYTES = 64_000_000  # hashed by one job
_BATCH_FILES = 500
_PYTHON_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One file that is not as it was made: `package` has name and version, or is empty where no wheel brought it.

    `cached` are the files of uv's cache that share this file's content by a hard link: bad there, bad in every
    environment that is linked from it.
    """

    kind: str
    path: str
    package: str
    what: str
    cached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was compared: files, hashes computed, the faults in order of their paths, and how many caches grew."""

    files: int
    hashed: int
    hashed_bytes: int
    grown: int
    faults: tuple[Fault, ...]


@dataclass(slots=True, kw_only=True)
class _Doubt:
    """A file whose hash has to decide."""

    path: str
    entry: Entry
    found: str = ""


def verify_receipt(folder: Path, made: receipt.Receipt, *, deep: bool) -> Verified:
    """Compare an environment with its receipt and manifest, and its Python with the one it was made with."""
    found = verify_folder(folder, digest=made.manifest, deep=deep)
    faults = [it for it in (_python_fault(folder, made.python), _base_fault(made)) if it]
    return replace(found, faults=(*found.faults, *faults)) if faults else found


def _base_fault(made: receipt.Receipt) -> Fault | None:
    """Compare the base that an environment rests on with what it was."""
    changes = changes_of(made.base) if made.base else ()
    if made.base is None or not changes:
        return None
    return Fault(kind=CHANGED, path=made.base.python, package="", what=f"its base: {'; '.join(changes)}")


def _python_fault(folder: Path, version: str) -> Fault | None:
    """Ask the environment's Python for its version: the one it rests on may be gone, or another by now."""
    words = [str(folder / "bin" / "python"), "-I", "-S", "-c", "import platform; print(platform.python_version())"]
    try:
        done = process.run(words, timeout=_PYTHON_SECONDS)
    except OSError as err:
        return Fault(kind=MISSING, path="bin/python", package="", what=f"does not start: {err.strerror}")
    said = done.stdout.strip()
    if done.returncode == 0 and said == version:
        return None
    what = f"is Python {said}, and the environment was made with {version}" if said else "does not start"
    return Fault(kind=CHANGED, path="bin/python", package="", what=what)


def verify_folder(folder: Path, *, digest: str, deep: bool) -> Verified:
    """Compare; `digest` is the manifest's, from the receipt. Raises OSError when a folder cannot be read."""
    path = folder / manifest.NAME
    try:
        found = f"sha256:{file_sha256(str(path))}"
        if found != digest:
            fault = Fault(kind=CHANGED, path=manifest.NAME, package="", what="not the manifest that the receipt names")
            return Verified(files=0, hashed=0, hashed_bytes=0, grown=0, faults=(fault,))
        return _Comparison(folder, deep=deep).run(path)
    except FileNotFoundError:
        fault = Fault(kind=MISSING, path=manifest.NAME, package="", what="the manifest is not there")
    except ManifestError as err:
        fault = Fault(kind=CHANGED, path=manifest.NAME, package="", what=str(err))
    return Verified(files=0, hashed=0, hashed_bytes=0, grown=0, faults=(fault,))


class _Comparison:
    """One walk over manifest and tree, in step."""

    def __init__(self, folder: Path, *, deep: bool) -> None:
        self.root = str(folder)
        self.deep = deep
        self.faults: list[Fault] = []
        self.packages: tuple[str, ...] = ()
        self.files = self.grown = self.hashed = self.hashed_bytes = 0
        self.doubts: list[_Doubt] = []
        self.doubted_bytes = 0

    def run(self, path: Path) -> Verified:
        """Compare everything; hashing runs on all cores beside the walk."""
        self.packages = manifest.read_packages(path)
        with Workers(self._hash) as workers:
            for folder, wanted, there in self._folders(path):
                self._compare(folder, wanted, there)
                if self.doubted_bytes > _BATCH_BYTES or len(self.doubts) > _BATCH_FILES:
                    self._give(workers)
            self._give(workers)
            while workers.waiting:
                self._judge(workers.take())
        self.faults.sort(key=lambda it: it.path)
        return Verified(
            files=self.files,
            hashed=self.hashed,
            hashed_bytes=self.hashed_bytes,
            grown=self.grown,
            faults=tuple(self.faults),
        )

    def _folders(self, path: Path) -> Iterator[tuple[str, list[Entry], list[os.DirEntry[str]]]]:
        """Yield each folder that either side has, with what each says is in it."""
        wanted_side, there_side = manifest.read_folders(path), walk_tree(self.root)
        wanted, there = next(wanted_side, None), next(there_side, None)
        while wanted or there:
            order = _side(wanted[0] if wanted else None, there[0] if there else None)
            folder = wanted[0] if wanted and order <= 0 else there[0] if there else ""
            yield folder, wanted[1] if wanted and order <= 0 else [], there[1] if there and order >= 0 else []
            if order <= 0:
                wanted = next(wanted_side, None)
            if order >= 0:
                there = next(there_side, None)

    def _compare(self, folder: str, wanted: list[Entry], there: list[os.DirEntry[str]]) -> None:
        """Compare one folder's files."""
        here = {it.name: it for it in there}
        for entry in wanted:
            self.files += 1
            path = f"{folder}/{entry.name}" if folder else entry.name
            item = here.pop(entry.name, None)
            if item is None:
                self._fault(MISSING, path, entry.package, "missing")
            elif entry.target is not None or item.is_symlink():
                self._compare_link(path, entry, item)
            else:
                self._compare_file(path, entry, item)
        for name in here:
            if not folder and name.lstrip(".").startswith((manifest.NAME, receipt.NAME)):
                continue
            self._appeared(f"{folder}/{name}" if folder else name, name)

    def _compare_link(self, path: str, entry: Entry, item: os.DirEntry[str]) -> None:
        target = os.readlink(item.path) if item.is_symlink() else None
        if target != entry.target:
            now = f"a link to {target}" if target is not None else "no link"
            was = f"a link to {entry.target}" if entry.target is not None else "a file"
            self._fault(CHANGED, path, entry.package, f"{now}, was {was}")

    def _compare_file(self, path: str, entry: Entry, item: os.DirEntry[str]) -> None:
        """Compare kind, size, mode and, where it has to decide, content."""
        about = item.stat(follow_symlinks=False)
        if not stat.S_ISREG(about.st_mode):
            self._fault(CHANGED, path, entry.package, "no longer a plain file")
        elif about.st_size != entry.size:
            self._fault(CHANGED, path, entry.package, f"{about.st_size} bytes, was {entry.size}")
        elif bool(about.st_mode & 0o100) != entry.executable:
            self._fault(CHANGED, path, entry.package, f"{'no longer ' if entry.executable else 'now '}executable")
        elif self.deep or about.st_mtime_ns != entry.mtime:
            self.doubts.append(_Doubt(path=path, entry=entry))
            self.doubted_bytes += entry.size

    def _appeared(self, path: str, name: str) -> None:
        """Judge what the manifest does not know."""
        folder, _, _ = path.rpartition("/")
        above, _, last = folder.rpartition("/")
        source = source_of(name) if last == "__pycache__" else None
        if source and os.path.isfile(os.path.join(self.root, above, source)):
            self.grown += 1
        else:
            self._fault(EXTRA, path, NOBODY, "not there when the environment was made")

    def _give(self, workers: Workers[list[_Doubt]]) -> None:
        """Have what is in doubt hashed, and judge what has been when much waits."""
        if self.doubts:
            workers.give(self.doubts)
        self.doubts, self.doubted_bytes = [], 0
        while workers.waiting > 2 * workers.cores:
            self._judge(workers.take())

    def _hash(self, doubts: list[_Doubt]) -> None:
        """Hash a batch of files, on another thread; one that cannot be read has the reason in place of its hash."""
        for doubt in doubts:
            try:
                doubt.found = file_sha256(f"{self.root}/{doubt.path}")
            except OSError as err:  # noqa: PERF203 - each file by itself
                doubt.found = f"cannot be read ({err.strerror})"

    def _judge(self, doubts: list[_Doubt]) -> None:
        for doubt in doubts:
            self.hashed += 1
            self.hashed_bytes += doubt.entry.size
            if doubt.found != doubt.entry.sha256:
                what = f"sha256 {doubt.found}, was {doubt.entry.sha256}"
                self._fault(CHANGED, doubt.path, doubt.entry.package, what)

    def _fault(self, kind: str, path: str, package: int, what: str) -> None:
        name = self.packages[package] if 0 <= package < len(self.packages) else ""
        self.faults.append(Fault(kind=kind, path=path, package=name, what=what))


def _side(wanted: str | None, there: str | None) -> int:
    """Return which folder comes first: -1 the manifest's, 1 the tree's, 0 when they are the same."""
    if wanted is None or there is None:
        return 1 if wanted is None else -1
    left, right = order_of(wanted), order_of(there)
    return (left > right) - (left < right)
