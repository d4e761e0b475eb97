"""`verl-env matrix show ROW`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from verl_env.builds.jobs import beside
from verl_env.builds.matrix_files import proven_of
from verl_env.errors import UsageError
from verl_env.matrix.fit import driver_floor
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.output import Result, human_bytes
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.builds.proven import Proven
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry, Matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row, and whether its packages are wanted too."""
    parser.add_argument("row", metavar="ROW", help="a row's id, as `matrix list` names it")
    parser.add_argument("--packages", action="store_true", help="also every pinned file")


def run(args: argparse.Namespace) -> Result:
    """Show one row."""
    matrix = load_matrix(args.matrix)
    entry = find_entry(matrix, args.row)
    data = {
        "id": entry.id,
        "status": entry.status(),
        "driver_min": driver_floor(entry.row.cuda, matrix.facts),
        "row": to_plain(entry.row),
        "builds": [to_plain(it) for it in proven_of(entry)],
        "variants": [to_plain(pins) | {"status": entry.status(pins)} for pins in entry.pins],
    }
    text = "\n".join(_lines(entry, matrix.facts))
    if args.packages:
        every = {pins.file_name: load_pins(entry, pins) for pins in entry.pins}
        data["pins"] = {name: [to_plain(pin) for pin in pins.pins] for name, pins in every.items()}
        for name, pins in every.items():
            text += f"\n\n{name}\n" + "\n".join(f"  {pin.name} {pin.version}  {pin.file}" for pin in pins.pins)
    return Result(data=data, text=text)


def find_entry(matrix: Matrix, row: str) -> Entry:
    """Return a row by its id; raises UsageError naming close ones."""
    if entry := matrix.entries.get(row):
        return entry
    close = difflib.get_close_matches(row, matrix.entries, n=3, cutoff=0.3) or list(matrix.entries)
    raise UsageError(f"no row is called `{row}`", hint=f"known: {', '.join(close)}; see `verl-env matrix list`")


def _lines(entry: Entry, facts: Facts) -> list[str]:
    """Write a row for people."""
    row = entry.row
    lines = [f"{entry.id}: {row.title}", f"status     {entry.status()}"]
    if row.broken:
        lines.append(f"broken     {row.broken}")
    floor = driver_floor(row.cuda, facts)
    lines.append(f"CUDA       {row.cuda or 'none'}" + (f", driver >= {floor}" if floor else ""))
    lines += [f"{name:<10} {version}" for name, version in row.set.items()]
    for pins in entry.pins:
        size = f", {human_bytes(pins.installed_bytes)} on disk" if pins.installed_bytes else ""
        lines.append(
            f"pins       Python {pins.python}, {pins.arch}: {entry.status(pins)}; {pins.packages} packages, "
            f"{human_bytes(pins.download_bytes)}{size}; glibc >= {pins.glibc or 'not stated'}"
        )
    if row.resolve:
        lines += [f"asked      {it}" for it in row.resolve.requirements]
        lines += [f"held       {it.spec}: {it.why}" for it in row.resolve.constraints]
        lines += [f"overrides  {it.spec}: {it.why}" for it in row.resolve.overrides]
        lines += [f"sdist      {it.name}: {it.why}" for it in row.resolve.sdists]
    if row.attention:
        lines += [f"attention  {row.attention.said}", *(f"           {it}" for it in row.attention.settings)]
    for build in row.build:
        lines.append(f"build      {build.package} {build.version} for {', '.join(build.architectures)}: {build.why}")
        if build.attention:
            lines.append(
                f"           then attention {build.attention.path}; verl-env build {build.package} --row {entry.id}"
            )
    lines += [line for it in proven_of(entry) for line in _made(it)]
    if row.smoke:
        lines.append(f"imports    {', '.join(row.smoke.imports)}")
    for it in row.evidence:
        counts = "" if any(pins.digest == it.pins for pins in entry.pins) else " (of other pins: does not count)"
        lines.append(f"evidence   {it.date} {it.level}: Python {it.python}, {it.arch}, device {it.device}{counts}")
    lines += [f"source     {it.fact}: {it.where}" for it in row.source]
    return lines


def _made(proven: Proven) -> list[str]:
    """Say how a build was made, and what its wheel showed."""
    record = proven.record
    lines = [
        f"built      {record.made[:10]} {record.version} for {', '.join(record.architectures)}: sha256 {record.sha256}"
    ]
    if (effort := record.effort) and record.maker:
        took = f"{effort.compiled} files in {effort.seconds / 60:.1f} min, {beside(effort.jobs)}"
        lines.append(f"           {took}, {human_bytes(effort.peak)} at most; {record.maker.compiler}")
    for shown in proven.shown:
        lines += [
            f"           on {shown.device}:",
            *(f"             {name}: {said}" for name, said in shown.checks.items()),
        ]
    return lines
