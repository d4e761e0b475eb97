"""`verl-env matrix resolve ROW`: a row's pins, made again, with a readable difference."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.commands.matrix_show import find_entry
from verl_env.errors import MatrixError, ResolveError, UsageError
from verl_env.files import write_atomically
from verl_env.indexes import read_indexes
from verl_env.lock.locate import locate
from verl_env.matrix.clashes import clash_line, find_clashes
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.matrix.pins import render_pins
from verl_env.matrix.resolve import resolve_row
from verl_env.output import Result, human_bytes
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.indexes import Indexes
    from verl_env.matrix.clashes import Clash
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import Pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row, and which of its variants."""
    parser.add_argument("row", metavar="ROW", help="a row's id")
    parser.add_argument("--python", metavar="X.Y", help="only this Python (default: all of the row's)")
    parser.add_argument("--arch", metavar="NAME", help="only this architecture (default: all of the row's)")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    parser.add_argument("--no-clashes", action="store_true", help="do not look for wheels that overwrite each other")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")


def run(args: argparse.Namespace) -> Result:
    """Resolve each variant, show what changes, write the pins beside the row."""
    matrix = load_matrix(args.matrix)
    entry = find_entry(matrix, args.row)
    folder = entry.path.parent.parent / "pins"
    if not args.dry_run and not os.access(folder.parent, os.W_OK):
        raise MatrixError(f"`{folder}` cannot be written", hint="resolve in a checkout, or with --matrix DIR")
    indexes = read_indexes(args.index)
    asked = [(python, arch) for python in entry.row.python for arch in entry.row.arch]
    wanted = [it for it in asked if args.python in (None, it[0]) and args.arch in (None, it[1])]
    if not wanted:
        raise UsageError(
            f"row `{entry.id}` is not for Python {args.python or 'any'} on {args.arch or 'any'}",
            hint=f"it is for {', '.join(f'{python} on {arch}' for python, arch in asked)}",
        )
    variants: list[dict[str, Any]] = []
    lines: list[str] = []
    refused: list[str] = []
    for python, arch in wanted:
        output.note(f"resolving {entry.id} for Python {python} on {arch}")
        new = _resolve(entry, python, arch, indexes, matrix)
        changes = _changes(_old(entry, new), new)
        clashes = () if args.no_clashes else _clashes(entry, new, indexes, matrix)
        lines += [_head(new), *(f"  {change}" for change in changes), *(f"  {clash_line(it)}" for it in clashes)]
        variants.append(_variant(new, changes, clashes))
        faults = [clash_line(it) for it in clashes if it.allowed is None]
        refused += [f"Python {python} on {arch}: {fault}" for fault in faults]
        if changes and not faults and not args.dry_run:
            write_atomically(folder / new.header.file_name, render_pins(new))
    data = {"row": entry.id, "variants": variants}
    if refused:
        raise _refusal(refused, data)
    return Result(data=data, text="\n".join(lines))


def _resolve(entry: Entry, python: str, arch: str, indexes: Indexes, matrix: Matrix) -> Pins:
    """Resolve, and say which of the row's own words most likely stand in the way."""
    try:
        return resolve_row(entry, python, arch, indexes, matrix.facts)
    except ResolveError as err:
        asked = entry.row.resolve
        if asked and any("no usable wheels" in line for line in err.details):
            err.hint = (
                f"the package that has no usable wheels: raise [resolve] glibc (it is {asked.glibc_on(arch)}), "
                "list it under sdists with a reason, or constrain it to a release with wheels"
            )
        raise


def _variant(new: Pins, changes: list[str], clashes: tuple[Clash, ...]) -> dict[str, Any]:
    head = new.header
    plain = [to_plain(clash) for clash in clashes]
    return {"python": head.python, "arch": head.arch, "digest": head.digest, "changes": changes, "clashes": plain}


def _clashes(entry: Entry, new: Pins, indexes: Indexes, matrix: Matrix) -> tuple[Clash, ...]:
    """Read what each wheel would put where, from its RECORD alone, and compare; says what could not be read."""
    from verl_env.matrix.wheel_records import read_records  # HTTP and zip files: of this action alone

    urls = locate(new.pins, new.header.python, indexes, matrix.facts).urls
    read = read_records(new.pins, urls, indexes)
    for name, why in sorted(read.unread.items()):
        output.note(f"  contents not looked at: {name} ({why})")
    return find_clashes(read.records, entry.row.allow)


def _refusal(refused: list[str], data: dict[str, Any]) -> ResolveError:
    """Return the error for wheels that overwrite each other: what is installed last would win."""
    error = ResolveError(
        "wheels put different contents at one path, and whichever is installed last wins",
        details=tuple(refused),
        hint="leave one of them out (an override with the marker `sys_platform == 'never'`), or allow it: "
        '[[allow]] rule = "path-clash", what = "the/path/*", why = "the reason, and what it costs"',
    )
    error.data = data
    return error


def _old(entry: Entry, new: Pins) -> Pins | None:
    for header in entry.pins:
        if header.file_name == new.header.file_name:
            return load_pins(entry, header)
    return None


def _head(new: Pins) -> str:
    head = new.header
    return (
        f"Python {head.python} on {head.arch}: {head.packages} packages, {human_bytes(head.download_bytes)}, "
        f"glibc >= {head.glibc}"
    )


def _changes(old: Pins | None, new: Pins) -> list[str]:
    """Say what was added, removed, changed; or that all of it is new."""
    if old is None:
        return ["made for the first time"]
    before = {pin.name: pin for pin in old.pins}
    after = {pin.name: pin for pin in new.pins}
    lines = [f"+ {name} {after[name].version}" for name in sorted(after.keys() - before.keys())]
    lines += [f"- {name} {before[name].version}" for name in sorted(before.keys() - after.keys())]
    for name in sorted(after.keys() & before.keys()):
        if after[name].version != before[name].version:
            lines.append(f"~ {name} {before[name].version} -> {after[name].version}")
        elif after[name] != before[name]:
            lines.append(f"~ {name} {after[name].version}: {before[name].file} -> {after[name].file}")
    if not lines and old.build != new.build:
        lines.append("~ the build requirements of its sdists")
    return lines
