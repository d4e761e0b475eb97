"""`verl-env matrix outdated [ROW]`: what upstream has released since, and what of it a row's own words allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.matrix_show import find_entry
from verl_env.fetch import FetchError
from verl_env.indexes import read_indexes
from verl_env.matrix.load import load_matrix
from verl_env.matrix.outdated import Standing, stand
from verl_env.output import Result
from verl_env.progress import steps
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.upstream import Upstream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row."""
    parser.add_argument("row", metavar="ROW", nargs="?", help="a row's id (default: every row)")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")


def run(args: argparse.Namespace) -> Result:
    """Ask the index of each package of each row's set, once; what is out of reach is said, package by package."""
    from verl_env.matrix.upstream import open_upstream  # HTTP and its parsers: of this action alone

    matrix = load_matrix(args.matrix)
    entries = [find_entry(matrix, args.row)] if args.row else sorted(matrix.entries.values(), key=lambda it: it.id)
    upstream = open_upstream(read_indexes(args.index), matrix.facts)
    found: dict[str, list[Standing]] = {}
    with steps("asking", sum(len(entry.row.set) for entry in entries), lines=False) as step:
        for entry in entries:
            found[entry.id] = _standings(entry, upstream, step)
    lines = [line for row, standings in found.items() for line in _lines(row, standings)]
    rows = [{"id": row, "packages": [to_plain(it) for it in standings]} for row, standings in found.items()]
    return Result(data={"rows": rows}, text="\n".join(lines))


def _standings(entry: Entry, upstream: Upstream, step: Callable[[str], None]) -> list[Standing]:
    row = entry.row
    sources = row.resolve.sources if row.resolve else {}
    requires: dict[str, tuple[str, ...]] = {}
    for package, version in row.set.items():
        try:
            said = upstream.metadata(package, version.split("+")[0], sources.get(package, "default"))
        except FetchError:
            continue  # said below, where the releases are asked for
        requires[f"{package} {version}"] = said.requires if said else ()
    standings = []
    for package, version in row.set.items():
        standings.append(_standing(entry, package, upstream, requires))
        step(f"{entry.id}: {package} {version}")
    return standings


def _standing(entry: Entry, package: str, upstream: Upstream, requires: dict[str, tuple[str, ...]]) -> Standing:
    row = entry.row
    source = row.resolve.sources.get(package, "default") if row.resolve else "default"
    try:
        released = upstream.releases(package, source, row.python[0], version=row.set[package])
    except FetchError as err:
        return Standing(package=package, have=row.set[package], source=source, unknown=err.message)
    others = {owner: specs for owner, specs in requires.items() if owner.split()[0] != package}
    return stand(row, package, released, others, source)


def _lines(row: str, standings: list[Standing]) -> list[str]:
    """Write a row for people: what is newer, and what holds it back."""
    lines = [f"{row}:"]
    for it in standings:
        if it.unknown:
            lines.append(f"  {it.package} {it.have}: not known: {it.unknown}")
        elif it.newest is None:
            lines.append(f"  {it.package} {it.have}: newest")
        elif it.allowed == it.newest:
            lines.append(f"  {it.package} {it.have} -> {it.newest} (allowed)")
        else:
            allowed = f"{it.allowed} allowed; " if it.allowed else ""
            lines.append(f"  {it.package} {it.have}, newest {it.newest} ({allowed}held by {'; '.join(it.held_by)})")
    return lines
