"""`verl-env use NAME`: an environment that stands here becomes the one in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.commands.switching import refuse_damaged
from verl_env.environment.receipt import find_environment
from verl_env.environment.standing import current_folder, settle, switch_to
from verl_env.errors import UsageError
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which."""
    parser.add_argument("name", metavar="NAME", help="as `verl-env list` calls it")
    parser.add_argument("--dry-run", action="store_true", help="look whether its files are all there, and do nothing")


def run(args: argparse.Namespace) -> Result:
    """Make it current by one rename, when its files are all there; `rollback` leads back."""
    folder, receipt = find_environment(args.name)
    if folder.parent != paths.environments().resolve():
        raise UsageError(
            f"`{folder}` is not one of the environments in {paths.environments()}",
            hint="its own verl-env switches to it: --home DIR",
        )
    was = current_folder()
    refuse_damaged(folder, receipt, hint=f"build it again: verl-env repair {folder.name}")
    moved = not args.dry_run and switch_to(folder)
    if not args.dry_run:
        settle(folder)
    data = {"environment": folder.name, "before": was.name if was else None, "changed": moved}
    verb = "would become" if args.dry_run else "is now" if moved else "already is"
    return Result(
        data=data, text=f"{folder.name} {verb} current: {receipt.title}\nit was {was.name if was else 'none'}"
    )
