"""`verl-env lock --format …`: a lock, or the row that fits, in the form of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output
from verl_env.errors import LockError, UsageError
from verl_env.files import write_atomically
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts


def run_export(args: argparse.Namespace) -> Result:
    """Print, or write to -o; no network is needed."""
    from verl_env.commands.lock_write import lock_data

    lock, facts = _lock(args)
    text = _rendered(args.format, lock, facts)
    data = lock_data(lock) | {"format": args.format, "file": args.output}
    if args.output is None or args.output == "-":
        return Result(data=data | {"text": text}, text=text.rstrip("\n"))
    target = Path(args.output)
    if args.dry_run:
        return Result(data=data | {"written": False}, text=f"would write {target}")
    if target.is_dir():
        raise UsageError(f"`{target}` is a folder", hint="name a file")
    try:
        write_atomically(target, text)
    except OSError as err:
        raise LockError(f"`{target}` cannot be written: {err.strerror}", hint="name another file with -o") from err
    return Result(data=data | {"written": True}, text=f"wrote {target}: {lock.table.title}, {len(lock.pins)} packages")


def _lock(args: argparse.Namespace) -> tuple[Lock, Facts]:
    """Return the lockfile that is named, or the lock of the row that fits."""
    if len(args.locks) > 1:
        raise UsageError("--format takes one lockfile", hint=f"name one: {args.locks[0]}")
    if args.locks:
        from verl_env.lock.read import read_lock
        from verl_env.matrix.load import load_matrix

        return read_lock(Path(args.locks[0])), load_matrix(args.matrix).facts
    from verl_env.commands.lock_making import make_lock

    made = make_lock(args, Path())
    for note in made.notes:
        output.note(f"note: {note}")
    return made.lock, made.situation.matrix.facts


def _rendered(form: str, lock: Lock, facts: Facts) -> str:
    from verl_env.lock.docker import render_dockerfile
    from verl_env.lock.export import render_constraints, render_requirements

    if form == "dockerfile":
        return render_dockerfile(lock, facts)
    return render_requirements(lock) if form == "requirements" else render_constraints(lock)
