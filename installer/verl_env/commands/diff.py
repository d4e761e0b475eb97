"""`verl-env diff`: what differs between two of anything that names packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.capture.compare import Difference
    from verl_env.capture.listing import Listing
    from verl_env.matrix.matrix import Matrix

_TITLES = {
    "environment": "environment",
    "torch": "torch family",
    "engine": "engine",
    "cuda": "CUDA libraries",
    "rest": "other packages",
    "files": "files",
}
_SHOWN = 40  # of one group, without -v


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two sides."""
    what = "an environment, a lockfile, a row, a report or a list of packages"
    parser.add_argument("left", metavar="A", help=what)
    parser.add_argument("right", metavar="B", help=what)
    parser.add_argument("--quick", action="store_true", help="do not hash the files of environments")


def run(args: argparse.Namespace) -> Result:
    """Compare; exit code 1 when anything differs."""
    from verl_env.capture.compare import compare
    from verl_env.capture.subject import read_subject
    from verl_env.capture.understood import describe_listing
    from verl_env.matrix.load import load_matrix
    from verl_env.records import to_plain

    matrix = load_matrix(args.matrix)
    left, _ = read_subject(args.left, matrix, verify=not args.quick)
    right, _ = read_subject(args.right, matrix, verify=not args.quick, like=left)
    found = (*_driver(left, right, matrix), *compare(left, right, matrix.facts))
    data = {
        "left": describe_listing(left, matrix),
        "right": describe_listing(right, matrix),
        "differences": [to_plain(it) for it in found],
    }
    return Result(data=data, text=_text(found, args, left, right), exit_code=1 if found else 0)


def _driver(left: Listing, right: Listing, matrix: Matrix) -> tuple[Difference, ...]:
    """Compare which drivers carry the two: the floor of each side's CUDA."""
    from verl_env.capture.compare import Difference
    from verl_env.matrix.support import driver_floor

    one, other = (driver_floor(it.cuda, matrix.facts) if it.cuda else None for it in (left, right))
    if not (one and other) or one == other:
        return ()
    return (Difference(group="environment", name="driver", left=f">= {one}", right=f">= {other}"),)


def _text(found: tuple[Difference, ...], args: argparse.Namespace, left: Listing, right: Listing) -> str:
    from verl_env.capture.understood import summary

    names = [os.path.basename(it.rstrip("/")) or it for it in (args.left, args.right)]
    lines = [f"A {names[0]}: {summary(left)}", f"B {names[1]}: {summary(right)}"]
    if not found:
        return "\n".join([*lines, "the same"])
    for group, title in _TITLES.items():
        members = [it for it in found if it.group == group]
        if not members:
            continue
        lines += ["", f"{title} ({len(members)})"]
        shown = members if args.verbose else members[:_SHOWN]
        width = max(len(it.name) for it in shown)
        lines += [f"  {it.name:{width}}  {it.left or '-'} -> {it.right or '-'}" for it in shown]
        if len(shown) < len(members):
            lines.append(f"  … {len(members) - len(shown)} more: -v")
    return "\n".join(lines)
