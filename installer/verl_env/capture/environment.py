"""An environment as a value: its distributions, the state of its files, and the lock it was made from. An edge."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verl_env.capture.condition import Condition, FileState, check_condition
from verl_env.capture.distributions import Installed, read_distributions
from verl_env.capture.layout import Layout, find_layout
from verl_env.capture.listing import UNCOMMITTED, Listed, Listing, Vcs
from verl_env.errors import LockError
from verl_env.lock.checkout import git_answer
from verl_env.lock.read import read_lock

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.lock.captured import PatchedFile
    from verl_env.lock.lockfile import Lock

# What a venv or an interpreter brings by itself; in a lock only when something asks for it.
BOOTSTRAP = frozenset({"pip", "setuptools", "wheel", "distribute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What was read of an environment. `faults` are what its metadata says against itself; `lock` the one in it."""

    layout: Layout
    installed: tuple[Installed, ...]
    faults: tuple[str, ...]
    condition: Condition | None
    lock: Lock | None = None

    @property
    def patched(self) -> tuple[PatchedFile, ...]:
        """The files that the patch of its own lock changed: their RECORD lines were corrected for it."""
        captured = self.lock.table.captured if self.lock else None
        return captured.patched if captured else ()

    def listing(self) -> Listing:
        """Return it as a list of packages, to be compared with others."""
        table = self.lock.table if self.lock else None
        return Listing(
            kind="environment",
            packages=tuple(self._listed(it) for it in self.installed),
            python=self.layout.python,
            cuda=table.cuda if table else None,
            machine=_machine(),
            row=(table.captured.nearest or None if table.captured else table.row) if table else None,
            allow=table.allow if table else (),
        )

    def _listed(self, installed: Installed) -> Listed:
        """Return a distribution with what its files really hold, where that was looked at."""
        listed = installed.listed
        if listed.editable:
            return _of_checkout(listed, installed.folder)
        states = [it for it in self.condition.files if it.package == installed.name] if self.condition else []
        if not states:
            return listed
        contents = dict(listed.contents or {})
        contents.update({it.path: it.sha256 or "missing" for it in states})
        edits = tuple(it.path for it in states if it.state != "overwritten")
        return replace(listed, contents=contents, edits=edits)


def _of_checkout(listed: Listed, folder: Path | None) -> Listed:
    """Return an editable distribution with its commit, and what its checkout has beyond that."""
    commit = git_answer(folder, "rev-parse", "HEAD") if folder and folder.is_dir() else None
    if folder is None or commit is None:
        return replace(listed, contents={})
    changes = git_answer(folder, "diff", "--no-ext-diff", "--binary", "HEAD")
    contents = {UNCOMMITTED: hashlib.sha256(changes.encode()).hexdigest()} if changes else {}
    return replace(listed, vcs=Vcs(kind="git", url="(a checkout)", commit=commit), contents=contents)


def read_environment(given: str | None, *, verify: bool) -> Environment:
    """Read an environment by its folder or its Python; `verify` hashes every file of it."""
    layout = find_layout(given)
    installed, faults = read_distributions(layout)
    found = Environment(
        layout=layout,
        installed=installed,
        faults=faults,
        condition=check_condition(layout, installed) if verify else None,
        lock=_lock_in(layout),
    )
    return replace(found, condition=_with_patched(found)) if found.condition and found.patched else found


def _with_patched(environment: Environment) -> Condition | None:
    """Count what the environment's own patch changed among its edits: a lock without the patch has none of it."""
    condition = environment.condition
    if condition is None:
        return None
    known = {(it.package, it.path) for it in condition.files}
    more = tuple(
        FileState(package=it.package, path=it.path, state="edited", sha256=it.sha256)
        for it in environment.patched
        if (it.package, it.path) not in known
    )
    return replace(condition, files=tuple(sorted((*condition.files, *more), key=lambda it: (it.package, it.path))))


def _lock_in(layout: Layout) -> Lock | None:
    """Return the lockfile that verl-env left in an environment of its own."""
    locks = (_lock_or_none(path) for path in sorted(layout.prefix.glob("pylock*.toml")))
    return next((it for it in locks if it), None)


def _lock_or_none(path: Path) -> Lock | None:
    try:
        return read_lock(path)
    except LockError:
        return None


def _machine() -> str:
    import os

    return os.uname().machine
