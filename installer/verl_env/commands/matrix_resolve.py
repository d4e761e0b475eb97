"""`verl-env matrix resolve ROW`: a row's pins, made again, with a readable difference."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.commands.matrix_show import find_entry
from verl_env.errors import MatrixError
from verl_env.files import write_atomically
from verl_env.indexes import read_indexes
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.matrix.pins import render_pins
from verl_env.matrix.resolve import resolve_row
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row, and which of its variants."""
    parser.add_argument("row", metavar="ROW", help="a row's id")
    parser.add_argument("--python", metavar="X.Y", help="only this Python (default: all of the row's)")
    parser.add_argument("--arch", metavar="NAME", help="only this architecture (default: all of the row's)")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")


def run(args: argparse.Namespace) -> Result:
    """Resolve each variant, show what changes, write the pins beside the row."""
    matrix = load_matrix(args.matrix)
    entry = find_entry(matrix, args.row)
    folder = entry.path.parent.parent / "pins"
    if not args.dry_run and not os.access(folder.parent, os.W_OK):
        raise MatrixError(f"`{folder}` cannot be written", hint="resolve in a checkout, or with --matrix DIR")
    indexes = read_indexes(args.index)
    variants: list[dict[str, Any]] = []
    lines: list[str] = []
    for python in (it for it in entry.row.python if args.python in (None, it)):
        for arch in (it for it in entry.row.arch if args.arch in (None, it)):
            output.note(f"resolving {entry.id} for Python {python} on {arch}")
            new = resolve_row(entry, python, arch, indexes, matrix.facts)
            changes = _changes(_old(entry, new), new)
            lines += [_head(new), *(f"  {change}" for change in changes)]
            variants.append({"python": python, "arch": arch, "digest": new.header.digest, "changes": changes})
            if changes and not args.dry_run:
                write_atomically(folder / new.header.file_name, render_pins(new))
    return Result(data={"row": entry.id, "variants": variants}, text="\n".join(lines))


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
