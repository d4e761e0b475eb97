"""Whether the files of an environment are still those that were installed. An edge: it reads all of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.environment.manifest import file_sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from verl_env.capture.distributions import Installed, Recorded
    from verl_env.capture.layout import Layout

# Written by installers and by Python itself beside the files of packages; owned by nobody, and nobody's edits.
_FREE_NAMES = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json"})
_FREE_FILES = frozenset({"_virtualenv.py", "_virtualenv.pth", "distutils-precedence.pth", "README.txt", "README"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One file that is not as its RECORD says.

    `state` is `edited`, `missing` or `overwritten` (by the package `by`); `sha256` is what it has now. `linked` says
    that it is a hard link: what was edited in place is edited under its other names too.
    """

    package: str
    path: str
    state: str
    by: str | None = None
    sha256: str | None = None
    linked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What was found, in the order of packages and paths. `unowned` are relative to the folder of packages."""

    files: tuple[FileState, ...] = ()
    unowned: tuple[str, ...] = ()
    checked: int = 0

    def of(self, state: str) -> tuple[FileState, ...]:
        """Return the files in one state."""
        return tuple(it for it in self.files if it.state == state)


def check_condition(layout: Layout, installed: tuple[Installed, ...]) -> Condition:
    """Hash every file that a RECORD vouches for, and look for those that none does."""
    owners: dict[Path, list[tuple[Installed, Recorded]]] = {}
    for package in installed:
        for line in package.files or ():
            if line.path.suffix != ".pyc" and line.path.name not in _FREE_NAMES:
                owners.setdefault(line.path, []).append((package, line))
    found: list[FileState] = []
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        for (_, claims), digest in zip(owners.items(), pool.map(_digest, owners.values()), strict=True):
            found += _judge(claims, digest)
    found.sort(key=lambda it: (it.package, it.path))
    unowned = _unowned(layout, installed, owners.keys()) if all(it.files is not None for it in installed) else ()
    return Condition(files=tuple(found), unowned=tuple(unowned), checked=len(owners))


def _digest(claims: list[tuple[Installed, Recorded]]) -> str | None:
    """Return a file's sha256, "" when nothing is there to compare, None when it is missing."""
    line = claims[0][1]
    if not line.path.is_file():
        return None
    return file_sha256(str(line.path)) if any(it.sha256 for _, it in claims) else ""


def _judge(claims: list[tuple[Installed, Recorded]], digest: str | None) -> Iterator[FileState]:
    """Say what a file is to each package whose RECORD names it."""
    if digest == "":
        return
    keeper = next((it.name for it, line in claims if line.sha256 == digest), None)
    for package, line in claims:
        path = package.relative(line.path)
        if digest is None:
            yield FileState(package=package.name, path=path, state="missing")
        elif line.sha256 and line.sha256 != digest:
            state = "overwritten" if keeper else "edited"
            linked = line.path.stat().st_nlink > 1
            yield FileState(package=package.name, path=path, state=state, by=keeper, sha256=digest, linked=linked)


def _unowned(layout: Layout, installed: tuple[Installed, ...], owned: Iterable[Path]) -> list[str]:
    """Return files in the package folders that no RECORD names; a whole folder of them as one entry."""
    names = {str(it) for it in owned}
    names |= {str(line.path) for package in installed for line in package.files or ()}
    above = _folders_of(names)
    infos = {str(it.info) for it in installed}
    found: list[str] = []
    for folder in layout.folders:
        if layout.kind == "system" and "dist-packages" in folder.parts:
            continue  # Debian's packages have no RECORD
        for top, folders, files in os.walk(folder):
            folders[:] = sorted(it for it in folders if it != "__pycache__")
            if top in infos:
                continue
            loose = [it for it in files if os.path.join(top, it) not in names and _counts(it)]
            inside = os.path.relpath(top, folder)
            if loose and len(loose) == len(files) and inside != "." and top not in above:
                found.append(f"{inside}/")
                folders.clear()
            else:
                found += [os.path.normpath(os.path.join(inside, it)) for it in sorted(loose)]
    return found


def _counts(name: str) -> bool:
    return not name.endswith(".pyc") and name not in _FREE_FILES and not name.startswith("__editable__")


def _folders_of(names: set[str]) -> set[str]:
    """Return every folder that has one of these files somewhere below it."""
    found: set[str] = set()
    for name in names:
        folder = os.path.dirname(name)
        while folder not in found and folder != os.path.dirname(folder):
            found.add(folder)
            folder = os.path.dirname(folder)
    return found
