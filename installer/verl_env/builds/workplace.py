"""The folder of one build: its files, its unpacked source, its tools, and what it has compiled so far. An edge.

It is kept until its wheel is stored, so that a build that was killed goes on. Each part appears by one rename.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import paths, toml, uv
from verl_env.builds.failing import BuildError
from verl_env.files import write_atomically
from verl_env.lock.build import hashed_requirements
from verl_env.records import RecordError, from_plain, to_plain

if TYPE_CHECKING:
    from verl_env.matrix.pins import Pin

_LEGACY = "setuptools.build_meta:__legacy__"  # PEP 517: for source trees that name no back end


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the attempts so far came to. `made_by` says with what: objects of another compiler are not linked in."""

    made_by: str
    seconds: float = 0.0
    compiled: int = 0
    attempts: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The folder of the build with this key."""

    folder: Path

    @property
    def inputs(self) -> Path:
        """Where its files are gathered."""
        return self.folder / "inputs"

    @property
    def tools(self) -> Path:
        """Where its build requirements are installed."""
        return self.folder / "tools"

    @property
    def out(self) -> Path:
        """Where the back end puts the wheel; emptied before each attempt."""
        return self.folder / "out"

    @property
    def temporary(self) -> Path:
        """Where compilers put what they do not keep; emptied before each attempt."""
        return self.folder / "tmp"

    @property
    def source(self) -> Path:
        """The unpacked sdist."""
        (top,) = (self.folder / "source").iterdir()
        return top

    def begin(self, made_by: str) -> Progress:
        """Take up what is there, when it was made with the same; else start with nothing compiled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            plain = json.loads((self.folder / "progress.json").read_text(encoding="utf-8"))
            progress = from_plain(Progress, plain)
        except (OSError, ValueError, RecordError):
            progress = Progress(made_by="")
        if progress.made_by != made_by:
            shutil.rmtree(self.folder / "source", ignore_errors=True)
            progress = Progress(made_by=made_by)
        for folder in (self.out, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        progress = replace(progress, attempts=progress.attempts + 1)
        self.keep(progress)
        return progress

    def keep(self, progress: Progress) -> None:
        """Write down how far it is."""
        write_atomically(self.folder / "progress.json", json.dumps(to_plain(progress)) + "\n")

    def unpack(self, sdist: str) -> None:
        """Unpack the source once: unpacked again, every file would be newer than what was compiled from it."""
        place = self.folder / "source"
        if place.is_dir():
            return
        part = self.folder / "source.part"
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(self.inputs / sdist) as archive:
            _extract(archive, part)
        tops = list(part.iterdir())
        if len(tops) != 1 or not tops[0].is_dir():
            raise BuildError(f"`{sdist}` is no source distribution: it has {len(tops)} entries at its top")
        os.replace(part, place)

    def install_tools(self, requires: tuple[Pin, ...], python: Path) -> None:
        """Install the build requirements, by hash, from the gathered files; once."""
        if self.tools.is_dir():
            return
        part = self.folder / "tools.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        done = uv.install_beside(python, part, hashed_requirements(requires), self.inputs) if requires else None
        if done and done.returncode != 0:
            raise BuildError("uv could not install what the build needs", details=done.tail())
        os.replace(part, self.tools)

    def backend(self) -> tuple[str, tuple[str, ...]]:
        """Return the PEP 517 back end that the source names, and its own folders."""
        path = self.source / "pyproject.toml"
        try:
            system = toml.loads(path.read_text(encoding="utf-8")).get("build-system", {}) if path.is_file() else {}
        except (ValueError, UnicodeDecodeError) as err:
            raise BuildError(f"the source's pyproject.toml cannot be read: {err}") from err
        return system.get("build-backend", _LEGACY), tuple(system.get("backend-path", ()))

    def remove(self) -> None:
        """Remove it: the wheel is stored."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()


def workplace_of(key: str) -> Workplace:
    """Return the folder of a build, whether or not it is there."""
    return Workplace(folder=paths.home() / "builds" / key)


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack what is a plain file or folder below `folder`; refuse anything that points elsewhere."""
    top = os.path.realpath(folder)
    for member in archive.getmembers():
        place = os.path.realpath(folder / member.name)
        inside = place == top or place.startswith(top + os.sep)
        if not inside or not (member.isfile() or member.isdir()):
            raise BuildError(f"the source has an entry that is no plain file below it: `{member.name}`")
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    checked: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Pythons since mid 2023
    archive.extractall(folder, **checked)  # noqa: S202 - every member was looked at above
