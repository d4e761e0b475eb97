"""`verl-env cluster …`: the nodes of a cluster, what they are and what fits all of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from verl_env.output import Result

ACTIONS = {
    "check": "every node's facts: what differs, and which row fits them all",
    "install": "build and prove one environment on every node, then switch all of them",
    "bootstrap": "the Ray of a lock, for a node that has none: to start a cluster with",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions; each is one file, cluster_<action>.py."""
    from verl_env import arguments

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)
    for name, summary in ACTIONS.items():
        sub = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        arguments.add_common(sub, inherit=True)
        import_module(f"verl_env.commands.cluster_{name}").add_arguments(sub)


def run(args: argparse.Namespace) -> Result:
    """Run one action."""
    result: Result = import_module(f"verl_env.commands.cluster_{args.action}").run(args)
    return result
