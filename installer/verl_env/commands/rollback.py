"""`verl-env rollback [N]`: the environment that was in use before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.switching import refuse_damaged
from verl_env.environment.standing import current_folder, step_back_to, ways_back
from verl_env.errors import NoEnvironmentError, UsageError
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how many steps."""
    parser.add_argument("steps", nargs="?", type=int, default=1, metavar="N", help="how many steps back (default: 1)")
    parser.add_argument("--dry-run", action="store_true", help="say which environment it would be, and do nothing")


def run(args: argparse.Namespace) -> Result:
    """Step back to an environment whose files are all there; `current` moves by one rename."""
    if args.steps < 1:
        raise UsageError(f"`{args.steps}` steps back is no step", hint="verl-env rollback 1")
    ways, was = ways_back(), current_folder()
    if len(ways) < args.steps:
        raise NoEnvironmentError(
            f"there are {len(ways)} environments to go back to, and {args.steps} steps were asked for",
            details=tuple(it.folder.name for it in ways),
            hint="see what is here: verl-env list",
        )
    way = ways[args.steps - 1]
    if way.receipt:
        further = f"go further back: verl-env rollback {args.steps + 1}; or verl-env repair {way.folder.name}"
        refuse_damaged(way.folder, way.receipt, hint=further)
    if not args.dry_run:
        step_back_to(way.folder)
    data = {"environment": way.folder.name, "before": was.name if was else None, "changed": not args.dry_run}
    title = way.receipt.title if way.receipt else ""
    verb = "would become" if args.dry_run else "is now"
    return Result(data=data, text=f"{way.folder.name} {verb} current: {title}\nit was {was.name if was else 'none'}")
