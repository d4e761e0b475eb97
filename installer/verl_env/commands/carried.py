"""What `install` takes from a bundle and from a base: the lock, the wheels, the Python, and what is there already."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, paths
from verl_env.builds.use import hand_over
from verl_env.bundle.layout import BUILDS, PYTHON, WHEELS, BundleError
from verl_env.bundle.read import Bundle
from verl_env.commands.there import python_of
from verl_env.environment.base import BaseRead, read_base
from verl_env.environment.overlay import mismatch, rest_on
from verl_env.errors import PreflightError, UsageError
from verl_env.lock.locate import Located, Served
from verl_env.lock.lockfile import parse_lock
from verl_env.node.facts import Interpreter
from verl_env.node.folders import nearest_existing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from verl_env.environment.overlay import Overlay
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.matrix import Matrix
    from verl_env.matrix.pins import Pin


def add_carried_arguments(group: argparse._ActionsContainer) -> None:
    """Add where to take files from besides indexes."""
    group.add_argument("--bundle", metavar="FILE", help="install from this bundle alone: no network is used")
    group.add_argument("--base", metavar="PYTHON", help="rest on this Python's packages, which stay as they are")


@dataclass(slots=True, kw_only=True)
class Carried:
    """What was brought: an open bundle, a base, both or neither."""

    bundle: Bundle | None = None
    base: BaseRead | None = None
    _unpacked: Path | None = field(default=None)

    @property
    def lock(self) -> Lock | None:
        """The bundle's lock, whose files must be the bundle's."""
        if self.bundle is None:
            return None
        manifest = self.bundle.manifest
        lock = parse_lock(self.bundle.read(manifest.lock).decode(), manifest.lock)
        hashes = {it.path: it.sha256 for it in manifest.members}
        left_out = {line.partition(" ")[0] for line in manifest.left_out}
        wrong = [
            pin.file
            for pin in (*lock.pins, *lock.table.build)
            if hashes.get(f"{WHEELS}{pin.file}", pin.sha256 if pin.name in left_out else None) != pin.sha256
        ]
        if wrong or lock.table.digest != manifest.digest:
            raise BundleError(
                f"`{self.bundle.given}` does not hold what its lock names",
                details=tuple(wrong[:5]),
                hint="write it again: verl-env bundle",
            )
        return lock

    def overlay(self, lock: Lock) -> Overlay | None:
        """Return how the lock rests on the base, if one was named; what the bundle leaves out must be there."""
        overlay = rest_on(lock, self.base) if self.base else None
        missing = [pin for pin in lock.pins if self._is_left_out(pin) and not (overlay and pin in overlay.used)]
        if missing:
            named = ", ".join(f"{pin.name} {pin.version}" for pin in missing[:6])
            raise PreflightError(
                f"the bundle leaves out {len(missing)} packages that are not here: {named}",
                hint="name the Python that has them: --base PYTHON; or write the bundle again without --minus",
            )
        return overlay

    def _is_left_out(self, pin: Pin) -> bool:
        return self.bundle is not None and f"{pin.name} {pin.version}" in self.bundle.manifest.left_out

    def located(self, lock: Lock) -> Located | None:
        """Unpack the wheels, each compared with its hash, and return where they are; None without a bundle."""
        if self.bundle is None:
            return None
        folder = paths.home() / "bundles" / self.bundle.digest.removeprefix("sha256:")[:12]
        self._check_room(folder)
        self._unpacked = folder
        self.bundle.extract(folder, lambda path: path.startswith((WHEELS, BUILDS)))
        hand_over(folder / BUILDS, folder / WHEELS)
        options = ("--no-index", "--find-links", str(folder / WHEELS))
        served = (Served(source="bundle", place=self.bundle.given.name, files=len(lock.pins)),)
        return Located(urls=lock.urls, options=options, served=served)

    def _check_room(self, folder: Path) -> None:
        """Refuse when the wheels do not fit beside the environment."""
        if self.bundle is None:
            return
        need = sum(it.size for it in self.bundle.manifest.members if it.path.startswith(WHEELS))
        free = shutil.disk_usage(nearest_existing(folder)).free
        if free < need:
            raise PreflightError(
                f"no space: `{folder.parent}` has {output.human_bytes(free)} free, and the bundle's wheels need "
                f"{output.human_bytes(need)} while they are installed",
                hint="free some, or name another folder: --home DIR",
            )

    def interpreter(self) -> Interpreter | None:
        """Return the base's Python, or the one that the bundle carries; None to look for one."""
        if self.base:
            return self.base.interpreter
        if self.bundle is None or self.bundle.manifest.interpreter is None:
            return None
        from verl_env.bundle.python import unpack_python

        pythons, carried = paths.home() / "pythons", paths.home() / "bundles" / "pythons"
        self.bundle.extract(carried, lambda path: path.startswith(PYTHON))
        for archive in sorted((carried / PYTHON).glob("*.tar")):
            unpack_python(archive, pythons)
        shutil.rmtree(carried)
        path = pythons / self.bundle.manifest.interpreter
        return Interpreter(
            path=str(path), kind="bundle", source=self.bundle.given.name, version=read_base(path).version, starts=True
        )

    def forget(self) -> None:
        """Remove the unpacked wheels: uv has what it needs in its cache."""
        if self._unpacked:
            shutil.rmtree(self._unpacked, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._unpacked.parent.rmdir()


@contextlib.contextmanager
def carried_by(args: argparse.Namespace) -> Iterator[Carried]:
    """Open what was named; raises BundleError, PreflightError, or UsageError for what does not go together."""
    if args.bundle and (args.lock or args.row):
        raise UsageError("--bundle has its own lock", hint="leave out the lockfile and --row")
    carried = Carried()
    try:
        if args.bundle:
            carried.bundle = Bundle(Path(args.bundle).expanduser())
        if args.base:
            carried.base = read_base(python_of(Path(args.base).expanduser()))
        yield carried
    finally:
        carried.forget()
        if carried.bundle:
            carried.bundle.close()


def base_obstacles(matrix: Matrix, base: BaseRead | None) -> dict[str, str]:
    """Return why variants of rows cannot rest on a base, by the name of their pins."""
    if base is None:
        return {}
    found = {}
    for entry in matrix.entries.values():
        for header in entry.pins:
            why = mismatch(base, python=header.python, torch=entry.row.set.get("torch"), cuda=entry.row.cuda)
            if why:
                found[header.file_name] = f"on {base.python}: {why}"
    return found
