"""An environment over a base: a Python that carries torch already (an image's, a site's) and is left as it is.

The base's packages stand behind the environment's own on `sys.path`: what the lock pins and the base lacks, or has at
another version, is installed in front. torch is never put in front of the base's: its libraries are found by path
from beside it, and two copies of them in one process do not work.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.environment.base import Base, BaseRead, changes_of, read_base
from verl_env.errors import PreflightError
from verl_env.files import write_atomically
from verl_env.lock.already import already_there, same_release
from verl_env.matrix.pins import Pin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.lock.lockfile import Lock
    from verl_env.lock.table import Table

# Sorts after every other .pth of a folder of packages: what those add stands before the base too.
LINK = "zzz_verl_env_base.pth"
_NAMED = 6  # packages named in a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """How a lock rests on a base: `install` are the pins that go in front of it, `used` those that it has.

    `differing` are (pin, the base's version) of those in front that the base has otherwise.
    """

    read: BaseRead
    install: tuple[Pin, ...]
    used: tuple[Pin, ...]
    differing: tuple[tuple[Pin, str], ...]

    @property
    def base(self) -> Base:
        """What the receipt keeps."""
        versions = self.read.versions
        return Base(
            python=self.read.python,
            version=self.read.version,
            digest=self.read.digest,
            folders=self.read.folders,
            used=tuple(f"{pin.name} {versions[pin.name]}" for pin in self.used),
        )

    @property
    def suffix(self) -> str:
        """What tells this environment's name from that of the same lock without a base."""
        return f"-on-{self.read.digest.removeprefix('sha256:')[:6]}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it."""
        lines = [f"it rests on {self.read.python}: {len(self.used)} of its packages are used, none is changed"]
        if self.differing:
            named = [f"{pin.name} {pin.version} (its {version})" for pin, version in self.differing[:_NAMED]]
            more = f" and {len(self.differing) - _NAMED} more" if len(self.differing) > _NAMED else ""
            lines.append(f"in front of the base's own: {', '.join(named)}{more}")
        return tuple(lines)


def rest_on(lock: Lock, read: BaseRead) -> Overlay:
    """Decide what is used and what is installed; raises PreflightError when the base's Python or torch is another."""
    if refusal := why_not(lock.table, read, next((it.version for it in lock.pins if it.name == "torch"), None)):
        raise PreflightError(
            f"`{read.python}` cannot be the base of {lock.table.title}: {refusal}",
            hint="choose a row with the base's torch and Python (`verl-env matrix list`), or install without --base",
        )
    used = already_there(lock.pins, read.versions, lock.table.cuda)
    names = {pin.name for pin in used}
    install = tuple(pin for pin in lock.pins if pin.name not in names)
    differing = tuple((pin, read.versions[pin.name]) for pin in install if pin.name in read.versions)
    return Overlay(read=read, install=install, used=used, differing=differing)


def same_base(lock: Lock, base: Base) -> Overlay:
    """Decide once more, over the base of an earlier environment; raises PreflightError when it is another by now."""
    if changes := changes_of(base):
        raise PreflightError(
            f"`{base.python}` is not the base that it was: {'; '.join(changes)}",
            hint="lay the lock over it as it is now: verl-env install --base PYTHON",
        )
    return rest_on(lock, read_base(Path(base.python)))


def in_front(lock: Lock, overlay: Overlay | None) -> Lock:
    """Return the lock less what its base has: what is fetched, with the room that it needs where that is known."""
    if overlay is None:
        return lock
    table = replace(lock.table, download_bytes=sum(pin.size for pin in overlay.install), installed_bytes=0)
    return replace(lock, table=table, pins=overlay.install)


def why_not(table: Table, read: BaseRead, torch: str | None) -> str | None:
    """Return why a lock cannot rest on a base: another Python minor, or another torch."""
    return mismatch(read, python=table.python, torch=torch, cuda=table.cuda)


def mismatch(read: BaseRead, *, python: str, torch: str | None, cuda: str | None) -> str | None:
    """Return how a base's Python or torch is another than what is wanted; None when both will do."""
    if Version(read.version).release[:2] != Version(python).release[:2]:
        return f"it is Python {read.version}, and Python {python} is locked"
    found = read.versions.get("torch")
    if torch is None or found is None:
        return None
    if not same_release(torch, found, cuda):
        return f"it has torch {found}, {torch} is locked, and torch is never replaced"
    theirs = read.cuda or None
    if (cuda is None) != (theirs is None) or (cuda and theirs and _major(cuda) != _major(theirs)):
        return f"its torch {found} is built for {_kind(theirs)}, and the lock is for {_kind(cuda)}"
    return None


def _major(cuda: str) -> str:
    return cuda.partition(".")[0]


def _kind(cuda: str | None) -> str:
    return f"CUDA {cuda}" if cuda else "CPUs"


def lay_over(folder: Path, overlay: Overlay) -> None:
    """Put the base behind an environment's own packages, and its used packages' programs into the environment's bin."""
    minor = ".".join(overlay.read.version.split(".")[:2])
    packages = folder / "lib" / f"python{minor}" / "site-packages"
    names = {pin.name for pin in overlay.used}
    # Of the base's own .pth files only those of packages that are used run here. Others may be anybody's: one that
    # was met adds a certificate to whatever certifi it finds, and so changed a file of the environment.
    hooks = [line for it in overlay.read.packages if it.name in names for line in it.hooks]
    write_atomically(packages / LINK, "".join(f"{line}\n" for line in (*overlay.read.folders, *hooks)))
    for path, text in _launchers(folder, overlay, names):
        write_atomically(path, text)
        path.chmod(path.stat().st_mode | 0o111)
    for it in overlay.read.packages:
        for program in it.programs if it.name in names else ():
            source, path = Path(overlay.read.bin) / program, folder / "bin" / program
            if source.is_file() and not _is_script(source) and not os.path.lexists(path):
                path.symlink_to(source)


def _launchers(folder: Path, overlay: Overlay, names: set[str]) -> Iterator[tuple[Path, str]]:
    """Yield the console scripts of the packages that are used, for the environment's own Python."""
    python = shlex.quote(str(folder / "bin" / "python"))
    for it in overlay.read.packages:
        for name, target in it.scripts.items() if it.name in names else ():
            module, _, function = target.partition("[")[0].strip().partition(":")
            path = folder / "bin" / name
            if os.path.lexists(path) or not function or "/" in name:
                continue
            start = f"#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n"  # shebangs are cut at 127 bytes
            yield path, f"{start}import sys\nfrom {module} import {function.split('.')[0]}\nsys.exit({function}())\n"


def _is_script(path: Path) -> bool:
    """Whether a program starts with an interpreter's name: that would be the base's, and see nothing of ours."""
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"
