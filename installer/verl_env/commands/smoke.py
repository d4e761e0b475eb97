"""`verl-env smoke`: an environment's smoke imports, again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.environment.build import failed_imports, sealed_environ
from verl_env.environment.receipt import find_environment
from verl_env.output import Result
from verl_env.proof.imports import run_imports
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, and the limit."""
    parser.add_argument(
        "environment", nargs="?", metavar="NAME", help="an environment (default: the current one)"
    )
    parser.add_argument(
        "--import-timeout", type=float, default=600.0, metavar="SECONDS", help="limit of each import"
    )


def run(args: argparse.Namespace) -> Result:
    """Import each module; raises SmokeError naming those that failed."""
    folder, receipt = find_environment(args.environment)
    runs = run_imports(
        folder / "bin" / "python",
        receipt.imports,
        env=sealed_environ(receipt.exports),
        log_folder=paths.logs() / folder.name,
        seconds=args.import_timeout,
    )
    data = {"environment": folder.name, "level": "imports", "imports": [to_plain(run) for run in runs]}
    if failed := [run for run in runs if not run.passed]:
        error = failed_imports(failed)
        error.data = data
        raise error
    return Result(data=data, text=f"{len(runs)} imports passed in {folder.name}")
