"""`verl-env lock`: the row that fits becomes a lockfile; `--check` holds one against what would be written."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from verl_env.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from verl_env.output import Result

FORMATS = ("pylock", "requirements", "constraints", "dockerfile")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what narrows the choice, what goes beyond the row, and where to write."""
    from verl_env.commands.choosing_arguments import add_choosing_arguments

    parser.add_argument("locks", nargs="*", metavar="LOCK", help="with --check or --format: these lockfiles")
    add_choosing_arguments(parser)
    add_beyond_arguments(parser)
    group = parser.add_argument_group("writing")
    group.add_argument("-o", "--output", metavar="FILE", help="where to write (default: pylock.<row>.toml here)")
    group.add_argument("--format", choices=FORMATS, default="pylock", help="write for another tool, to stdout or -o")
    group.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    group.add_argument("--check", action="store_true", help="write nothing; exit 1 if the lock is not what would be")


def add_beyond_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what makes a lock more than its row."""
    from verl_env.commands.built_wheels import add_built_arguments

    group = parser.add_argument_group("beyond the row")
    group.add_argument(
        "--with",
        dest="wishes",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="add a package on top of the row's pins, which do not move (may be given again)",
    )
    group.add_argument(
        "-r",
        "--requirements",
        action="append",
        default=[],
        metavar="FILE",
        help="add what a requirements file asks for",
    )
    group.add_argument(
        "--upgrade-package",
        action="append",
        default=[],
        metavar="NAME",
        help="let this pin go (the proof goes with it)",
    )
    group.add_argument("--resolve", action="store_true", help="resolve the row afresh, unproved, in place of its pins")
    group.add_argument(
        "--exclude-newer", type=_day, metavar="DATE", help="add nothing that was published after this day"
    )
    group.add_argument("--editable", metavar="PATH", help="a checkout of verl, to be installed over the pins")
    add_built_arguments(group, unasked="the default is the row alone")
    group.add_argument(
        "--allow", action="append", default=[], metavar="RULE", help="write it although it breaks a rule"
    )


def _day(text: str) -> dt.date:
    """Read a date; argparse shows the ValueError's words."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError as err:
        import argparse

        raise argparse.ArgumentTypeError(f"not a date: `{text}` (write it as 2026-11-30)") from err


def run(args: argparse.Namespace) -> Result:
    """Check, export or write."""
    if args.check:
        from verl_env.commands.lock_check import run_check

        return run_check(args)
    if args.format != "pylock":
        from verl_env.commands.lock_export import run_export

        return run_export(args)
    if args.locks:
        raise UsageError(
            f"`{args.locks[0]}` is named, and neither --check nor --format", hint=f"to write there: -o {args.locks[0]}"
        )
    from verl_env.commands.lock_write import run_write

    return run_write(args)
