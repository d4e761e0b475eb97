"""`verl-env lock`, writing: every file is located, then the lockfile is written at once or not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from verl_env import output
from verl_env.commands.lock_making import make_lock
from verl_env.errors import LockError, UsageError
from verl_env.files import write_atomically
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import Lock, render_lock
from verl_env.output import Result, human_bytes
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from verl_env.commands.lock_making import Made
    from verl_env.lock.locate import Located


def run_write(args: argparse.Namespace) -> Result:
    """Make the lock, locate every file, write."""
    given = lock_path(args.output, "row")
    made = make_lock(args, given.parent)
    target = lock_path(args.output, made.lock.table.row)
    for note in made.notes:
        output.note(f"note: {note}")
    if args.dry_run:
        return _result(made, target, None)
    located = _located(made)
    lock = replace(made.lock, urls=portable(located.urls, target.parent))
    try:
        write_atomically(target, render_lock(lock))
    except OSError as err:
        raise LockError(f"`{target}` cannot be written: {err.strerror}", hint="name another file with -o") from err
    return _result(made, target, located)


def _located(made: Made) -> Located:
    """Ask the indexes in use where each file is."""
    lock, situation = made.lock, made.situation
    output.note(f"locating {len(lock.pins)} files of {lock.table.row} (cp{lock.table.python}, {lock.table.arch})")
    return locate(lock.pins, lock.table.python, situation.indexes, situation.matrix.facts)


def portable(urls: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write local files as paths relative to the lockfile (PEP 751): a file: URL holds only on this machine."""
    return {
        file: Path(os.path.relpath(unquote(urlsplit(url).path), folder.resolve())).as_posix()
        if url.startswith("file:")
        else url
        for file, url in urls.items()
    }


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


def _result(made: Made, target: Path, located: Located | None) -> Result:
    lock = made.lock
    data = lock_data(lock) | {
        "file": str(target),
        "written": located is not None,
        "notes": list(made.notes),
        "served": [to_plain(it) for it in located.served] if located else [],
        "settings": [{"setting": name, "value": value} for name, value in made.situation.indexes.origins],
    }
    return Result(data=data, text=_text(lock, target, dry=located is None))


def lock_data(lock: Lock) -> dict[str, Any]:
    """Return what scripts read of a lock."""
    table = lock.table
    return {
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
        "added": list(table.added),
        "moved": dict(table.moved),
        "unproven": table.unproven,
        "allow": list(table.allow),
        "editable": to_plain(table.editable) if table.editable else None,
    }


def _text(lock: Lock, target: Path, *, dry: bool) -> str:
    table = lock.table
    return (
        f"{'would write' if dry else 'wrote'} {target}: {table.title} (row {table.row}), Python {table.python}, "
        f"{len(lock.pins)} packages, {human_bytes(table.download_bytes)}\n{table.digest}"
    )
