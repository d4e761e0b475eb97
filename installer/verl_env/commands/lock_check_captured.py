"""`verl-env lock --check` of a captured lock: its packages are its own, and everything else follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env.capture.rebuild import Target, captured_lock
from verl_env.commands.checked import Checked, broken_rules, other_row
from verl_env.environment.patches import check_patch
from verl_env.errors import PreflightError, UsageError
from verl_env.lock.compare import Difference, compare_locks
from verl_env.lock.lockfile import sealed
from verl_env.matrix.load import load_pins

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.lock.captured import Captured
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import Pins


def hold_captured(found: Lock, text: str, path: Path, matrix: Matrix, args: argparse.Namespace) -> Checked:
    """Say how a captured lock differs from what its packages give, and whether its patch is the one beside it."""
    table, captured = found.table, found.table.captured
    if captured is None:
        raise AssertionError("only for captured locks")
    if args.wishes or args.requirements or args.upgrade_package or args.resolve:
        raise UsageError(f"`{path}` was captured: nothing can be asked on top of it", hint="check a lock of a row so")
    near, notes = _near(captured, found, matrix), []
    target = Target(
        python=table.python, arch=table.arch, facts=matrix.facts, near=near, allow=table.allow, build=table.build
    )
    expected = captured_lock(table.row, found.pins, found.urls, captured, target)
    if captured.nearest and near is None:
        notes.append(
            f"{path}: the matrix has no row {captured.nearest}; what it knew of this set is taken from the lock"
        )
        expected = _as_told(expected, found)
    differences = [*other_row(found, args), *compare_locks(found, expected, text), *patch_differences(found)]
    differences += broken_rules(expected, set(table.allow), matrix.facts)
    if differences:
        notes.append(f"{path} was captured: capture it again where that environment is")
    return Checked(file=str(path), row=table.row, differences=tuple(differences), notes=tuple(notes))


def _near(captured: Captured, found: Lock, matrix: Matrix) -> tuple[Entry, Pins] | None:
    """Return the nearest row with its pins, for the lock's own Python where there are such."""
    entry = matrix.entries.get(captured.nearest)
    header = entry.variant(found.table.python, found.table.arch) if entry else None
    return (entry, load_pins(entry, header)) if entry and header else None


def _as_told(expected: Lock, found: Lock) -> Lock:
    """Take from the lock what only its nearest row could say."""
    table = found.table
    told = replace(
        expected.table,
        title=table.title,
        imports=table.imports,
        cuda=table.cuda,
        driver=table.driver,
        exports=table.exports,
        attention=table.attention,
        settings=table.settings,
    )
    return sealed(replace(expected, table=told))


def patch_differences(found: Lock) -> tuple[Difference, ...]:
    """Say what is wrong with the patch beside a lock; nothing when it has none."""
    try:
        check_patch(found)
    except PreflightError as err:
        return (Difference(kind="patch", what="patch", text=err.message),)
    return ()
