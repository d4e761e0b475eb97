"""`verl-env matrix import-build RECORD`: a build's record, and what its wheel showed on a GPU, into the matrix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from verl_env.builds.matrix_files import builds_folder, proven_of
from verl_env.builds.proven import Proven, proven_faults, render_proven, shown_in
from verl_env.builds.record import parse_record
from verl_env.commands.matrix_show import find_entry
from verl_env.environment.receipt import Receipt
from verl_env.errors import MatrixError, UsageError
from verl_env.files import write_atomically
from verl_env.lock.read import read_lock
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.output import Result
from verl_env.records import from_plain, to_plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from verl_env.builds.record import Record
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.matrix import Entry

T = TypeVar("T")
_HINT = "name the record.json of a wheelhouse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the record, the row it is of, and the receipt of an environment that has the wheel."""
    parser.add_argument("record", metavar="RECORD", help="the record.json of a wheel in the wheelhouse")
    parser.add_argument("--row", metavar="ID", required=True, help="the row whose build it is")
    parser.add_argument(
        "--receipt",
        metavar="FILE",
        help="verl-env-receipt.json of an environment with that wheel, proved on a GPU; its lockfile beside it",
    )
    parser.add_argument("--dry-run", action="store_true", help="check it, write nothing")


def run(args: argparse.Namespace) -> Result:
    """Check both against the row; add them when nothing speaks against it."""
    matrix = load_matrix(args.matrix)
    entry = find_entry(matrix, args.row)
    record = _read(args.record, parse_record)
    before = next((it for it in proven_of(entry) if it.record.key == record.key), None)
    proven = before if before and before.record == record else Proven(row=entry.id, record=record)
    if faults := proven_faults(proven, entry.row):
        raise MatrixError(
            f"`{args.record}` is no build of row `{entry.id}`",
            details=tuple(faults),
            hint=f"build it as the row is now: verl-env build {record.package} --row {entry.id}",
        )
    if args.receipt:
        receipt = _read(args.receipt, _receipt)
        lock = read_lock(Path(args.receipt).expanduser().with_name(f"pylock.{receipt.row}.toml"))
        _refuse_another(lock, receipt, entry, record)
        proven = proven.with_shown(shown_in(receipt))
    path = builds_folder(entry) / proven.file_name
    if not args.dry_run:
        if not os.access(entry.path, os.W_OK):
            raise MatrixError(f"`{entry.path}` cannot be written", hint="import in a checkout, or with --matrix DIR")
        write_atomically(path, render_proven(proven))
    shown = ", ".join(it.device for it in proven.shown) or "no GPU yet"
    text = f"{entry.id}: {record.package} {record.version} for {', '.join(record.architectures)}, shown on {shown}"
    return Result(data={"file": str(path), "build": to_plain(proven), "changed": not args.dry_run}, text=text)


def _read(name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise UsageError(f"cannot read `{name}`: {err}", hint=_HINT) from err


def _receipt(text: str) -> Receipt:
    return from_plain(Receipt, json.loads(text))


def _refuse_another(lock: Lock, receipt: Receipt, entry: Entry, record: Record) -> None:
    """Refuse a receipt that is not of the row's own pins with this very wheel, as the lock beside it says."""
    if lock.table.digest != receipt.lock_digest:
        raise MatrixError(
            "the lock is not the one that the receipt is of",
            details=(f"the receipt says {receipt.lock_digest}", f"the lock is      {lock.table.digest}"),
            hint="bring both from the folder of one environment",
        )
    wheel = (record.package, record.version, record.sha256)
    files = {(pin.name, pin.version, pin.sha256) for pin in lock.pins}
    variants = (load_pins(entry, it) for it in entry.variants(lock.table.arch) if it.python == lock.table.python)
    wanted = [{(pin.name, pin.version, pin.sha256) for pin in it.pins} | {wheel} for it in variants]
    if files not in wanted:
        has = "has" if wheel in files else "does not have"
        raise MatrixError(
            "the receipt is not of an environment of this row with this wheel",
            details=(f"its lock {has} the wheel; it has {len(files)} packages",),
            hint=f"install it: verl-env install --row {entry.id} --with-built; then verl-env smoke --level kernel",
        )
