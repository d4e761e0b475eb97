"""`verl-env doctor`: what is wrong, why it matters, and the one thing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.node.arguments import add_node_arguments

if TYPE_CHECKING:
    import argparse

    from verl_env.output import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to look at."""
    parser.add_argument("--log", metavar="FILE", help="explain a failed run's output (- for stdin; gzip is read too)")
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Look, and say what is wrong; exit code 0 when nothing is, 8 with findings."""
    from verl_env.commands.doctor_log import run_log

    return run_log(args)
