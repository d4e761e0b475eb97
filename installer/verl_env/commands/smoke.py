"""`verl-env smoke`: an environment's proofs, again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.proving import add_proof_arguments
from verl_env.environment.prove import prove
from verl_env.environment.receipt import find_environment
from verl_env.output import Result
from verl_env.proof.levels import jobs_of
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, how far, how long."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    add_proof_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Import each module, and exercise it if asked; raises SmokeError naming those that failed."""
    folder, receipt = find_environment(args.environment)
    jobs = jobs_of(args.level, receipt.imports, receipt.set, receipt.settings)
    runs = prove(folder, jobs, receipt.exports, seconds=args.time_limit)
    data = {"environment": folder.name, "level": args.level, "runs": [to_plain(run) for run in runs]}
    lines = [f"{run.level:<9}  {run.name}  {run.seconds:.1f} s" for run in runs]
    return Result(data=data, text="\n".join([*lines, f"{len(runs)} proofs passed in {folder.name}"]))
