"""A checkout installed over the pins of an environment, in place of the package of the same name. An edge."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.errors import InstallError, PreflightError
from verl_env.lock.build import hashed_requirements
from verl_env.lock.checkout import git_answer

if TYPE_CHECKING:
    from verl_env.lock.lockfile import Lock


def check_checkout(lock: Lock) -> tuple[str, ...]:
    """Refuse when the lock's checkout is not there; return notes on how it differs from what was locked."""
    editable = lock.table.editable
    if editable is None:
        return ()
    folder = Path(lock.editable_folder)
    if not any((folder / name).is_file() for name in ("pyproject.toml", "setup.py")):
        where = f", cloned from {editable.remote}" if editable.remote else ""
        raise PreflightError(
            f"the lock puts a checkout of {editable.name} over its pins, and there is none at `{editable.path}`",
            hint=f"put commit {editable.commit or 'unknown'}{where} there, beside the lockfile",
        )
    notes = []
    head = git_answer(folder, "rev-parse", "HEAD")
    if editable.commit and head != editable.commit:
        notes.append(
            f"{editable.name} is at {(head or 'no commit')[:12]}, and the lock was made at {editable.commit[:12]}"
        )
    if head and git_answer(folder, "status", "--porcelain", "--untracked-files=no"):
        notes.append(f"{editable.name} has changes that no commit holds")
    return tuple(notes)


def install_checkout(lock: Lock, python: Path, index_options: tuple[str, ...]) -> None:
    """Install the lock's checkout editable, without its dependencies: they are pinned. Raises InstallError.

    Its build requirements come from the lock's own, by hash, as far as they are there.
    """
    if lock.table.editable is None:
        return
    words = ["pip", "install", "--no-deps", "--editable", lock.editable_folder, "--python", str(python)]
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        build = Path(name) / "build.txt"
        build.write_text(hashed_requirements(lock.table.build), encoding="utf-8")
        done = uv.run([*words, "--build-constraints", str(build), *index_options], cwd=Path(name))
    if done.returncode != 0:
        raise InstallError(
            f"uv could not install the checkout `{lock.table.editable.path}`",
            details=done.tail(),
            hint="see that it builds: pip wheel --no-deps on the checkout",
        )
