"""`verl-env matrix …`: the rows, shown and explained; and kept."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from verl_env.output import Result

ACTIONS = {
    "list": "every row: status, engine, CUDA, driver floor, Pythons",
    "show": "one row whole: its set, constraints with reasons, sources, evidence",
    "explain": "hold every row against a node, and say which is chosen and why the others are not",
    "check": "hold facts, rows, pins and evidence against each other",
    "resolve": "make a row's pins (again), and show what changes",
    "prove": "install a row from its pins, run its proofs, and write the evidence",
    "import-evidence": "check the evidence of another machine, and add it to its row",
    "import-build": "add the record of a build, and what its wheel showed on a GPU, to its row",
    "outdated": "what upstream has released since, row by row",
    "new": "write a row's skeleton, filled from package metadata",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions; each is one file, matrix_<action>.py."""
    from verl_env import arguments

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)
    for name, summary in ACTIONS.items():
        sub = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        arguments.add_common(sub, inherit=True)
        import_module(f"verl_env.commands.matrix_{_module(name)}").add_arguments(sub)


def run(args: argparse.Namespace) -> Result:
    """Run one action."""
    result: Result = import_module(f"verl_env.commands.matrix_{_module(args.action)}").run(args)
    return result


def _module(action: str) -> str:
    return action.replace("-", "_")
