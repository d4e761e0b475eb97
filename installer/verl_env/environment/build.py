"""A lock becomes an environment: its own final folder, proved, its receipt last, then `current` moves.

Killed at any instant, the environment in use is as it was: nothing is ever changed in place. A folder without a
receipt is an unfinished one of ours (its marker says so) and is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import __version__, output, paths, uv
from verl_env.environment.exports import Export, applied, exports_of
from verl_env.environment.receipt import SCHEMA, Receipt, Shown, now, read_receipt, write_receipt
from verl_env.environment.shells import render_exports
from verl_env.errors import InstallError, PreflightError, SmokeError
from verl_env.files import link_atomically, write_atomically
from verl_env.lock.build import hashed_requirements
from verl_env.proof.levels import jobs_of
from verl_env.proof.runs import Job, Run, run_jobs
from verl_env.records import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.environment.exports import Surroundings
    from verl_env.lock.lockfile import Lock
    from verl_env.node.facts import Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an installation will do; made before it does anything, and printed by --dry-run."""

    lock: Lock
    lock_text: str
    folder: Path
    interpreter: Interpreter
    index_options: tuple[str, ...]
    around: Surroundings
    device: str
    level: str = "imports"
    job_seconds: float = 600.0
    keep_failed: bool = False


def installed(lock: Lock) -> Receipt | None:
    """Return the receipt of this very lock's environment, when it is complete."""
    receipt = read_receipt(paths.environments() / lock.name)
    return receipt if receipt and receipt.lock_digest == lock.table.digest else None


def switch_to(folder: Path) -> bool:
    """Point `current` at an environment by one rename; return whether it pointed elsewhere before."""
    link = paths.current()
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink() and os.readlink(link) == target:
        return False
    if link.exists() and not link.is_symlink():
        raise InstallError(f"`{link}` is not a link of ours", hint="move it away, or name another folder: --home DIR")
    link_atomically(link, target)
    return True


def build_environment(plan: Plan) -> Receipt:
    """Build, prove and switch; raises InstallError or SmokeError, and then `current` is as it was."""
    with _held(plan.folder):
        if done := installed(plan.lock):  # another installer finished it while we waited
            switch_to(plan.folder)
            return done
        _clear(plan.folder)
        try:
            receipt = _build(plan)
        except BaseException:
            if not plan.keep_failed:
                shutil.rmtree(plan.folder, ignore_errors=True)
                _marker(plan.folder).unlink(missing_ok=True)
            raise
        _marker(plan.folder).unlink(missing_ok=True)
        switch_to(plan.folder)
        return receipt


def _build(plan: Plan) -> Receipt:
    """Do it, one step after the other; the receipt comes last."""
    table, folder = plan.lock.table, plan.folder
    _marker(folder).touch()
    uv.make_venv(folder, plan.interpreter.path)
    _install_packages(plan)
    exports, notes = exports_of(table, str(folder), plan.around)
    write_exports(folder, exports)
    write_atomically(folder / plan.lock.file_name, plan.lock_text)
    runs = _prove(plan, exports)
    receipt = Receipt(
        schema=SCHEMA,
        name=folder.name,
        lock_digest=table.digest,
        row=table.row,
        title=table.title,
        python=plan.interpreter.version or table.python,
        interpreter=plan.interpreter.path,
        packages=len(plan.lock.pins),
        made=now(),
        by=f"verl-env {__version__}",
        level=plan.level,
        device=plan.device,
        imports=table.imports,
        shown=tuple(Shown(level=run.level, name=run.name, seconds=round(run.seconds, 2)) for run in runs),
        exports=exports,
        set=table.set,
        notes=notes,
        settings=table.settings,
    )
    write_receipt(folder, receipt)
    return receipt


def _install_packages(plan: Plan) -> None:
    """Give every pin to uv, by hash; on failure the error has uv's words."""
    table = plan.lock.table
    done = uv.sync(
        plan.folder / "bin" / "python",
        hashed_requirements(plan.lock.pins),
        hashed_requirements(table.build),
        plan.index_options,
        show=not output.quiet and sys.stderr.isatty(),
    )
    if done.returncode != 0:
        log = paths.logs() / f"{plan.folder.name}-install.log"
        write_atomically(log, done.stdout + done.stderr)
        raise InstallError(
            "uv could not install the pinned packages",
            details=(*done.tail(), f"log: {log}") if done.stderr else ("uv's words are above",),
            hint="run it again: what was fetched is kept; behind a mirror, see --index",
        )


def write_exports(folder: Path, exports: tuple[Export, ...]) -> None:
    """Write the exports beside the environment's own activate, for shells that do not run verl-env."""
    write_atomically(folder / "exports.sh", render_exports(exports, "sh", os.environ))
    write_atomically(folder / "exports.fish", render_exports(exports, "fish", os.environ))


def _prove(plan: Plan, exports: tuple[Export, ...]) -> tuple[Run, ...]:
    """Show what the plan asks for, in the environment as it will be used."""
    table = plan.lock.table
    return prove(
        plan.folder,
        jobs_of(plan.level, table.imports, table.set, table.settings),
        exports,
        seconds=plan.job_seconds,
    )


def prove(folder: Path, jobs: tuple[Job, ...], exports: tuple[Export, ...], *, seconds: float) -> tuple[Run, ...]:
    """Run proof jobs in an environment; raises SmokeError with each failed one's last line and log."""
    runs = run_jobs(
        folder / "bin" / "python",
        jobs,
        env=sealed_environ(exports),
        log_folder=paths.logs() / folder.name,
        seconds=seconds,
    )
    failed = [run for run in runs if not run.passed]
    if not failed:
        return runs
    error = SmokeError(
        f"{len(failed)} of {len(runs)} proofs failed in {folder.name}",
        details=tuple(line for run in failed for line in (f"{run.name}: {run.last_line}", f"  log: {run.log}")),
        hint="read the log of the first one",
    )
    error.data = {"environment": folder.name, "runs": [to_plain(run) for run in runs]}
    raise error


def sealed_environ(exports: tuple[Export, ...]) -> dict[str, str]:
    """Return the variables that programs of the environment run with."""
    from verl_env.process import clean_environ

    return applied(exports, clean_environ())


def _marker(folder: Path) -> Path:
    """Return the file that says: the folder beside it is being built by verl-env, and is not finished."""
    return folder.with_name(f".{folder.name}.building")


def _clear(folder: Path) -> None:
    """Remove an unfinished environment of ours; refuse anything else that stands there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir() or not (_marker(folder).exists() or read_receipt(folder)):
        raise PreflightError(
            f"`{folder}` is there, and verl-env did not make it",
            hint="move it away, or name another folder: --home DIR",
        )
    shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock of one environment; a second installer waits. The kernel frees it when its holder dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w", encoding="utf-8") as handle:  # noqa: PTH123
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            output.note(f"another verl-env is building {folder.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
