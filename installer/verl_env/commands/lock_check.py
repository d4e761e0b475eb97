"""`verl-env lock --check`: is the committed lockfile what would be written? For CI; no index is asked."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.commands.checked import Checked, broken_rules, other_row
from verl_env.errors import LockError, UsageError
from verl_env.lock.annotate import workflow_commands
from verl_env.lock.compare import Difference, compare_locks
from verl_env.lock.expect import Inputs, expected_lock, newer_row, unmet_wishes, with_files
from verl_env.lock.lockfile import Lock, parse_lock, parse_unjudged
from verl_env.lock.read import read_text
from verl_env.lock.table import Asked
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.matrix.status import LEAST_STATUS, proved, status_of
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.lock.table import Editable
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import PinsHeader

_SHOWN = 40  # differences on a terminal


def run_check(args: argparse.Namespace) -> Result:
    """Check each lockfile that is named, or the one that is here; exit 1 when one differs."""
    paths = [Path(it) for it in args.locks] or [_the_lock()]
    matrix = load_matrix(args.matrix)
    checked = [_told(path, matrix, args) for path in paths]
    differs = any(it.differences for it in checked)
    for note in (note for it in checked for note in it.notes):
        output.note(f"note: {note}")
    data = {"locks": [_data(it) for it in checked]}
    return Result(data=data, text="\n".join(_text(it) for it in checked), exit_code=int(differs))


def _told(path: Path, matrix: Matrix, args: argparse.Namespace) -> Checked:
    """Check one lockfile; where GitHub runs this, tell it what to show beside the file, also of one that is none."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    try:
        checked = _check(path, matrix, args)
    except LockError as err:
        said = Difference(kind="text", what="file", text=err.message)
        if on_github:
            _tell(Checked(file=str(path), row="", differences=(said,)))
        raise
    if on_github:
        _tell(checked)
    return checked


def _tell(checked: Checked) -> None:
    for line in workflow_commands(checked.file, checked.differences):
        print(line, file=sys.stderr)


def _the_lock() -> Path:
    """Return the lockfile of this folder: pylock.toml, or the only one with a name."""
    if Path("pylock.toml").is_file():
        return Path("pylock.toml")
    found = sorted(Path().glob("pylock.*.toml"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise LockError("no lockfile is here", hint="write one: verl-env lock; or name it: lock --check FILE")
    names = " ".join(it.name for it in found)
    raise UsageError(f"{len(found)} lockfiles are here", hint=f"name those to check: lock --check {names}")


def _check(path: Path, matrix: Matrix, args: argparse.Namespace) -> Checked:
    """Hold one lockfile against what its row and its own inputs give."""
    text = read_text(path)
    # What is rendered byte for byte needs no judge of PEP 751 (a third of the time); whatever else does.
    quick = parse_unjudged(text, str(path))
    if quick is None:
        return _hold(parse_lock(text, str(path), tampered=True), text, path, matrix, args)
    checked = _hold(quick, text, path, matrix, args)
    if checked.differences:
        parse_lock(text, str(path), tampered=True)
    return checked


def _hold(found: Lock, text: str, path: Path, matrix: Matrix, args: argparse.Namespace) -> Checked:
    """Say how a lock differs from what its row and its own inputs give."""
    captured = found.table.captured
    if captured and captured.nearest != found.table.row:
        from verl_env.commands.lock_check_captured import hold_captured

        return hold_captured(found, text, path, matrix, args)
    entry = matrix.entries.get(found.table.row)
    header = next((it for it in entry.pins if _is_variant(it, found)), None) if entry else None
    if entry is None or header is None:
        what = f"row {found.table.row}, Python {found.table.python}, {found.table.arch}"
        said = f"{what}: the matrix has no such pins (any more)"
        return Checked(
            file=str(path), row=found.table.row, differences=(Difference(kind="row", what="row", text=said),)
        )
    base = load_pins(entry, header)
    notes: list[str] = []
    asked = _asked_now(found, path.parent, args, notes)
    inputs = Inputs(entry=entry, base=base, asked=asked, editable=_checkout_now(found, path.parent, entry, notes))
    expected = expected_lock(found, inputs, matrix.facts)
    differences = (*other_row(found, args), *unmet_wishes(found, inputs), *compare_locks(found, expected, text))
    differences += broken_rules(expected, {*found.table.allow, *(it.rule for it in entry.row.allow)}, matrix.facts)
    if captured:
        from verl_env.commands.lock_check_captured import patch_differences

        differences += patch_differences(found)
    if newer := newer_row(found, entry, matrix):
        notes.append(f"{path}: row {newer} is newer, and runs wherever this lock does")
    unproved = not proved(status_of(entry.row, header), LEAST_STATUS)
    command = "" if captured else command_of(found, path, inputs, unproved=unproved)
    return Checked(file=str(path), row=entry.id, differences=differences, notes=tuple(notes), command=command)


def _is_variant(header: PinsHeader, found: Lock) -> bool:
    return (header.python, header.arch) == (found.table.python, found.table.arch)


def _asked_now(found: Lock, folder: Path, args: argparse.Namespace, notes: list[str]) -> Asked:
    """Return what the lock was asked for: as given now, else as its table has it, with the files as they are now."""
    if _beyond(args):
        from verl_env.commands.lock_making import read_asked

        return read_asked(args, folder)[0]
    asked = found.table.asked or Asked()
    lines: dict[str, tuple[str, ...]] = {}
    for file in asked.files:
        if not (folder / file.name).is_file():
            notes.append(f"{file.name} is not here: its lines are taken from the lock")
            continue
        from verl_env.lock.requirements_file import read_requirements

        lines[file.name] = tuple(it.line for it in read_requirements(folder / file.name))
    return with_files(asked, lines)


def _beyond(args: argparse.Namespace) -> bool:
    return bool(args.wishes or args.requirements or args.upgrade_package or args.resolve or args.allow)


def _checkout_now(found: Lock, folder: Path, entry: Entry, notes: list[str]) -> Editable | None:
    """Return the lock's checkout as it is now, so far as a difference counts; as locked when it is not here."""
    locked = found.table.editable
    if locked is None:
        return None
    if not (folder / locked.path).is_dir():
        notes.append(f"the checkout `{locked.path}` is not here: what it declares is taken from the lock")
        return locked
    from verl_env.lock.checkout import read_checkout
    from verl_env.lock.declared import row_extras

    now = read_checkout(str(folder / locked.path), folder, row_extras(entry.row))
    # Work on the checkout goes on: what is not committed or not pushed yet is no difference.
    return replace(now, path=locked.path, remote=locked.remote, dirty=locked.dirty, pushed=locked.pushed)


def command_of(found: Lock, path: Path, inputs: Inputs, *, unproved: bool) -> str:
    """Return the command that writes a lock again from the same inputs, on any machine."""
    table, asked = found.table, inputs.asked
    node = ("--driver", table.driver) if table.driver else ("--cpu",)
    words = ["verl-env", "lock", "--row", table.row, "--python", table.python, *node]
    words += ["--arch", table.arch] if table.driver else []
    words += ["--allow-unproved"] if unproved else []
    words += [word for it in asked.wishes for word in ("--with", it)]
    words += [word for it in asked.files for word in ("-r", str(path.parent / it.name))]
    words += [word for it in asked.upgrade for word in ("--upgrade-package", it)]
    words += ["--resolve"] if asked.resolve else []
    words += ["--exclude-newer", asked.exclude_newer.isoformat()] if asked.exclude_newer else []
    words += ["--editable", str(path.parent / inputs.editable.path)] if inputs.editable else []
    words += ["--with-built"] if table.built else []
    words += [word for it in table.allow for word in ("--allow", it)]
    return shlex.join([*words, "-o", str(path)])


def _data(checked: Checked) -> dict[str, Any]:
    return {
        "file": checked.file,
        "row": checked.row,
        "same": not checked.differences,
        "differences": [to_plain(it) for it in checked.differences],
        "notes": list(checked.notes),
        "command": checked.command,
    }


def _text(checked: Checked) -> str:
    """Say it for people: one line when all is well, else each difference and what to do."""
    found = checked.differences
    if not found:
        return f"{checked.file} is what would be written (row {checked.row})"
    lines = [f"{checked.file} is not what would be written (row {checked.row}): {len(found)} differences"]
    marks = {"added": "+", "removed": "-"}
    lines += [f"  {marks.get(it.kind, '~')} {it.text}" for it in found[:_SHOWN]]
    lines += [f"  … and {len(found) - _SHOWN} more (--json has them all)"] if len(found) > _SHOWN else []
    return "\n".join([*lines, f"write it again: {checked.command}"] if checked.command else lines)
