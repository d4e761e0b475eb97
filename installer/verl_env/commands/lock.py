"""`verl-env lock`: the row that fits becomes a lockfile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.commands.choosing import Reach, add_choosing_arguments, choose_reachable, read_situation
from verl_env.errors import LockError, UsageError
from verl_env.files import write_atomically
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import Lock, render_lock
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.commands.choosing import Situation
    from verl_env.matrix.pins import Pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what narrows the choice, and where to write."""
    add_choosing_arguments(parser)
    group = parser.add_argument_group("writing")
    group.add_argument("-o", "--output", metavar="FILE", help="where to write (default: pylock.<row>.toml here)")
    group.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")


def run(args: argparse.Namespace) -> Result:
    """Choose, locate every file, write."""
    situation = read_situation(args)
    fit, pins, _ = choose_reachable(situation, Reach(), for_install=False)
    target = lock_path(args.output, fit.entry.id)
    lock = build_lock(fit.entry, pins, situation.matrix.facts)
    if not args.dry_run:
        lock = with_urls(lock, pins, situation)
        try:
            write_atomically(target, render_lock(lock))
        except OSError as err:
            raise LockError(f"`{target}` cannot be written: {err.strerror}", hint="name another file with -o") from err
    return Result(data=_data(lock, target, written=not args.dry_run), text=_text(lock, target, dry=args.dry_run))


def with_urls(lock: Lock, pins: Pins, situation: Situation) -> Lock:
    """Ask the index in use where each file is."""
    from dataclasses import replace

    output.note(f"locating {len(pins.pins)} files of {pins.header.row} (cp{pins.header.python}, {pins.header.arch})")
    located = locate(pins.pins, pins.header.python, situation.indexes, situation.matrix.facts)
    return replace(lock, urls=located.urls)


def lock_path(asked: str | None, row: str) -> Path:
    """Return where the lock goes; PEP 751 wants `pylock.toml` or `pylock.<name>.toml`, name without a dot."""
    path = Path(asked) if asked else Path(f"pylock.{row}.toml")
    from packaging.pylock import is_valid_pylock_path

    if not is_valid_pylock_path(path):
        raise UsageError(
            f"`{path.name}` is not a lockfile's name (PEP 751)",
            hint="name it pylock.toml or pylock.<name>.toml, the name without a dot",
        )
    if path.is_dir():
        raise UsageError(f"`{path}` is a folder", hint="name a file")
    return path


def _data(lock: Lock, target: Path, *, written: bool) -> dict[str, Any]:
    table = lock.table
    return {
        "file": str(target),
        "written": written,
        "row": table.row,
        "digest": table.digest,
        "python": table.python,
        "arch": table.arch,
        "cuda": table.cuda,
        "driver_min": table.driver,
        "glibc_min": table.glibc,
        "packages": len(lock.pins),
        "download_bytes": table.download_bytes,
        "set": table.set,
    }


def _text(lock: Lock, target: Path, *, dry: bool) -> str:
    table = lock.table
    return (
        f"{'would write' if dry else 'wrote'} {target}: {table.title} (row {table.row}), Python {table.python}, "
        f"{len(lock.pins)} packages, {human_bytes(table.download_bytes)}\n{table.digest}"
    )
