"""A lock becomes an environment: its own final folder, its manifest, its proof, its receipt last; then `current` moves.

Killed at any instant, the environment in use is as it was: nothing is ever changed in place. A folder without a
receipt is an unfinished one of ours (its marker says so) and is built again.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import __version__, output, paths, uv
from verl_env.environment.activation import activation_of
from verl_env.environment.broken_cache import broken_in_cache
from verl_env.environment.by_place import install_by_place
from verl_env.environment.bytecode import provide_bytecode
from verl_env.environment.cuda_home import complete
from verl_env.environment.editable import check_checkout, install_checkout
from verl_env.environment.exports import Export, Surroundings, exports_of
from verl_env.environment.holding import held
from verl_env.environment.overlay import Overlay, lay_over
from verl_env.environment.own_sources import own_sources
from verl_env.environment.patches import apply_captured, check_patch
from verl_env.environment.prove import Subject, prove, shown_by
from verl_env.environment.receipt import NAME, SCHEMA, Receipt, now, read_receipt, write_receipt
from verl_env.environment.removal import remove_environment
from verl_env.environment.shells import render_exports
from verl_env.environment.standing import marker_of, switch_to
from verl_env.environment.strays import refuse_strays
from verl_env.environment.survey import DamagedError, Survey, survey
from verl_env.environment.uv_notes import drop_notes
from verl_env.errors import InstallError, PreflightError
from verl_env.files import write_atomically
from verl_env.lock.build import hashed_requirements
from verl_env.lock.locate import Part
from verl_env.lock.lockfile import Lock
from verl_env.node.facts import Interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.environment.survey import Damage
    from verl_env.matrix.pins import Pin
    from verl_env.process import Completed

WAIT_SECONDS = 3600.0  # for another installer of the same environment: 10 GB over a slow network take that long
_SHOWN = 8  # damaged files named in an error


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
    wait: float = WAIT_SECONDS
    switch: bool = True
    overlay: Overlay | None = None
    parts: tuple[Part, ...] = ()


def build_environment(plan: Plan) -> Receipt:
    """Build, prove and switch; raises InstallError or SmokeError, and then `current` is as it was."""
    with _explained(plan.folder):
        plan.folder.parent.mkdir(parents=True, exist_ok=True)
        with held(plan.folder, wait=plan.wait):
            receipt = read_receipt(plan.folder)  # another installer may have finished it while we waited
            if receipt is None or receipt.lock_digest != plan.lock.table.digest:
                receipt = _build_afresh(plan)
            if plan.switch:
                switch_to(plan.folder)
        return receipt


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error of ours: a full disk is no bug."""
    try:
        yield
    except OSError as err:
        raise InstallError(
            f"`{err.filename or folder}` cannot be written: {err.strerror or err}",
            hint="free some space, or name another folder: --home DIR",
        ) from err


def _build_afresh(plan: Plan) -> Receipt:
    """Build in an empty folder; on failure nothing stays, unless it was asked for."""
    _clear(plan.folder)
    try:
        receipt = _build(plan)
    except BaseException:
        if not plan.keep_failed:
            with contextlib.suppress(OSError):
                remove_environment(plan.folder)
        raise
    marker_of(plan.folder).unlink(missing_ok=True)
    return receipt


def _build(plan: Plan) -> Receipt:
    """Do it, one step after the other; the receipt comes last."""
    table, folder = plan.lock.table, plan.folder
    checkout = (*check_checkout(plan.lock), *check_patch(plan.lock))
    _begin(folder)
    uv.make_venv(folder, plan.interpreter.path)
    _install_packages(plan)
    exports, notes = exports_of(table, str(folder), complete(plan.around, folder, plan.lock, plan.overlay))
    write_exports(folder, exports)
    write_atomically(folder / plan.lock.file_name, plan.lock_text)
    found = _survey(plan)
    subject = Subject(
        folder=folder,
        python=table.python,
        cuda=table.cuda,
        imports=table.imports,
        packages=table.set,
        settings=table.settings,
        exports=exports,
        base=plan.overlay.base if plan.overlay else None,
    )
    proof = prove(subject, plan.level, seconds=plan.job_seconds)
    receipt = Receipt(
        schema=SCHEMA,
        name=folder.name,
        lock_digest=table.digest,
        row=table.row,
        title=table.title,
        python=_version(plan),
        interpreter=plan.interpreter.path,
        packages=len(plan.lock.pins),
        made=now(),
        by=f"verl-env {__version__}",
        level=proof.level or "files",
        device=proof.device or plan.device,
        imports=table.imports,
        shown=shown_by(proof),
        exports=exports,
        set=table.set,
        notes=(*notes, *checkout, *(plan.overlay.notes if plan.overlay else ()), *proof.notes),
        settings=table.settings,
        manifest=found.digest,
        files=found.files,
        bytes=found.bytes,
        base=plan.overlay.base if plan.overlay else None,
        cuda=table.cuda,
        attention=table.attention,
    )
    write_receipt(folder, receipt)
    return receipt


def _version(plan: Plan) -> str:
    return plan.interpreter.version or plan.lock.table.python


def _begin(folder: Path) -> None:
    """Mark the folder as being built by us, and make it; a link that somebody planted there is not followed."""
    marker = marker_of(folder)
    os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    folder.mkdir()


def _clear(folder: Path) -> None:
    """Remove an unfinished environment of ours; refuse anything else that stands there."""
    if not os.path.lexists(folder):
        return
    ours = folder.is_dir() and not folder.is_symlink() and (marker_of(folder).exists() or (folder / NAME).is_file())
    if not ours:
        raise PreflightError(
            f"`{folder}` is there, and verl-env did not make it",
            hint="move it away, or name another folder: --home DIR",
        )
    remove_environment(folder)


def _install_packages(plan: Plan, again: tuple[str, ...] = ()) -> None:
    """Give every pin to uv, by hash, but for what a base has; on failure the error has uv's words."""
    pins = plan.overlay.install if plan.overlay else plan.lock.pins
    done = _sync(plan, pins, again)
    if done.returncode != 0 and not done.stderr:  # its words went to the terminal: once more, to read them
        done = _sync(plan, pins, again, show=False)
    if done.returncode != 0 and (names := broken_in_cache(done.stderr)):
        output.warn(f"uv's cache is broken for {', '.join(names)}: fetching them anew")
        uv.forget_cached(names)
        done = _sync(plan, pins, again)
    if done.returncode != 0 and len(plan.parts) > 1:  # one of them may have another file under a pinned name
        show = not output.quiet and sys.stderr.isatty()
        python = plan.folder / "bin" / "python"
        done = install_by_place(python, pins, plan.lock.table.build, plan.parts, show=show)
    if done.returncode != 0:
        raise _install_error(plan, done)
    refuse_strays(plan.lock_text, done)
    drop_notes(plan.folder)
    own_sources(plan.folder)
    provide_bytecode(plan.folder, pins, _version(plan), again=again)
    if plan.overlay:
        lay_over(plan.folder, plan.overlay)
    install_checkout(plan.lock, plan.folder / "bin" / "python", plan.index_options)
    apply_captured(plan.lock, plan.folder, plan.index_options)


def _sync(plan: Plan, pins: tuple[Pin, ...], again: tuple[str, ...], *, show: bool = True) -> Completed:
    """Have uv install what is pinned, from its cache or the indexes; on a terminal, `show` how far it is."""
    return uv.sync(
        plan.folder / "bin" / "python",
        hashed_requirements(pins),
        hashed_requirements(plan.lock.table.build),
        plan.index_options,
        show=show and not output.quiet and sys.stderr.isatty(),
        again=again,
    )


def _install_error(plan: Plan, done: Completed) -> InstallError:
    """Say what uv said, and keep all of it in a log where that can still be written."""
    log = paths.logs() / f"{plan.folder.name}-install.log"
    where: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        write_atomically(log, done.stdout + done.stderr)
        where = (f"log: {log}",)
    hint = "run it again: what was fetched is kept; behind a mirror, see --index"
    if "No space left" in done.stderr or "Disk quota exceeded" in done.stderr:
        hint = "free some space, or name another folder: --home DIR; what was fetched is kept"
    elif "Hash mismatch" in done.stderr:
        hint = "do not install that file; ask whoever keeps the index, or name another: --index URL"
    details = (*done.tail(), *where) if done.stderr else ("uv's words are above", *where)
    error = InstallError("uv could not install the pinned packages", details=details, hint=hint)
    error.said = done.stdout + done.stderr
    return error


def _survey(plan: Plan) -> Survey:
    """Write the manifest; a package whose files are not its RECORD's is fetched anew, past uv's cache.

    After that its files come from a wheel whose hash was compared a moment ago: a RECORD that still disagrees is
    wrong itself, and the files are taken as they are.
    """
    try:
        return survey(plan.folder)
    except DamagedError as err:
        names = sorted({it.package.split(" ")[0] for it in err.damages})
        output.warn(f"uv's cache gave damaged files of {', '.join(names)}: fetching them anew ({_first(err.damages)})")
        uv.forget_cached(names)
        _install_packages(plan, tuple(names))
        trusted = frozenset(it.package for it in err.damages)
    try:
        return survey(plan.folder, trust_disk=trusted)
    except DamagedError as err:
        raise InstallError(
            "files are missing or damaged after the installation",
            details=tuple(f"{it.package}: {it.path}: {it.what}" for it in err.damages[:_SHOWN]),
            hint="run it again; if it stays so, the disk or its memory is failing",
        ) from err


def _first(damages: tuple[Damage, ...]) -> str:
    return f"{damages[0].path}: {damages[0].what}"


def write_exports(folder: Path, exports: tuple[Export, ...]) -> None:
    """Write the exports beside the environment's own activate, for shells that do not run verl-env."""
    activation = activation_of(folder, exports, {})
    for form in ("sh", "fish"):
        write_atomically(folder / f"exports.{form}", render_exports(activation, form))
