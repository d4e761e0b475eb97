"""`verl-env matrix list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.matrix.fit import driver_floor
from verl_env.matrix.load import load_matrix
from verl_env.matrix.status import evidence_of
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry

_COLUMNS = ("id", "status", "verl", "engine", "cuda", "driver >=", "python", "shown")
_SPARED = "verl"  # where the table would be wider than this many characters: ids begin with it
_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond what every command takes."""


def run(args: argparse.Namespace) -> Result:
    """List every row, newest verl first."""
    from packaging.version import Version

    matrix = load_matrix(args.matrix)
    entries = sorted(matrix.entries.values(), key=lambda entry: entry.id)
    entries.sort(key=lambda entry: Version(entry.row.set["verl"]), reverse=True)
    rows = [_row(entry, matrix.facts) for entry in entries]
    return Result(data={"rows": rows}, text=_table([_line(row) for row in rows]))


def _row(entry: Entry, facts: Facts) -> dict[str, Any]:
    """Return everything `--json` says of a row."""
    row = entry.row
    dates = [it.date.isoformat() for pins in entry.pins for it in evidence_of(row, pins)]
    return {
        "id": entry.id,
        "title": row.title,
        "status": entry.status(),
        "verl": row.set["verl"],
        "engine": row.engine,
        "engine_version": row.set[row.engine] if row.engine else None,
        "torch": row.set["torch"],
        "cuda": row.cuda,
        "driver_min": driver_floor(row.cuda, facts),
        "python": list(row.python),
        "arch": list(row.arch),
        "variants": [
            {
                "python": pins.python,
                "arch": pins.arch,
                "status": entry.status(pins),
                "glibc_min": pins.glibc,
                "packages": pins.packages,
                "download_bytes": pins.download_bytes,
                "installed_bytes": pins.installed_bytes or None,
                "pins": pins.digest,
            }
            for pins in entry.pins
        ],
        "evidence_date": max(dates, default=None),
        "site": entry.site,
    }


def _line(row: dict[str, Any]) -> dict[str, str]:
    """Return a row's cells for people."""
    return {
        "id": row["id"],
        "status": row["status"],
        "verl": row["verl"],
        "engine": f"{row['engine']} {row['engine_version']}" if row["engine"] else "-",
        "cuda": row["cuda"] or "cpu",
        "driver >=": row["driver_min"] or "-",
        "python": _range(row["python"]),
        "shown": row["evidence_date"] or "-",
    }


def _range(pythons: list[str]) -> str:
    """Write Pythons that follow each other as `3.10-3.12`."""
    minors = sorted(int(it.split(".")[1]) for it in pythons)
    unbroken = len(minors) > 1 and minors == list(range(minors[0], minors[-1] + 1))
    return f"3.{minors[0]}-3.{minors[-1]}" if unbroken else " ".join(pythons)


def _table(lines: list[dict[str, str]]) -> str:
    """Align the cells in columns; plain text, so that it can be cut and grepped, and fits a terminal."""
    if not lines:
        return "no rows"
    head = {name: name for name in _COLUMNS}
    widths = {name: max(len(line[name]) for line in [head, *lines]) for name in _COLUMNS}
    columns = [name for name in _COLUMNS if name != _SPARED or _wide(widths, _COLUMNS) <= _WIDTH]
    gap = "  " if _wide(widths, columns) <= _WIDTH else " "
    return "\n".join(gap.join(line[name].ljust(widths[name]) for name in columns).rstrip() for line in [head, *lines])


def _wide(widths: dict[str, int], columns: Sequence[str]) -> int:
    """Return how wide a table of these columns is, two spaces between them."""
    return sum(widths[name] for name in columns) + 2 * (len(columns) - 1)
