"""The arguments that narrow a choice. Apart from the choice itself, which is heavy to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.node.arguments import add_node_arguments

if TYPE_CHECKING:
    import argparse


def add_choosing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what narrows the rows, where files come from, and what describes the node."""
    group = parser.add_argument_group("choosing")
    add_wishes(group)
    group.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    group.add_argument("--mirror", metavar="NAME", help="public mirrors by name (tsinghua,sjtu,hf-mirror), or `auto`")
    add_node_arguments(parser)


def add_wishes(group: argparse._ActionsContainer) -> None:
    """Add what narrows the rows."""
    group.add_argument("--row", metavar="ID", help="this row of the matrix, if it fits")
    group.add_argument("--verl", metavar="VERSION", help="only rows with this verl")
    group.add_argument("--engine", choices=("vllm", "sglang", "none"), help="only rows with this inference engine")
    group.add_argument("--python", metavar="X.Y", help="only rows for this Python minor")
    group.add_argument("--ray", metavar="VERSION", help="only rows with this Ray (a cluster's must be matched)")
    group.add_argument("--cpu", action="store_true", help="a row for CPU work, whatever GPUs are here")
    group.add_argument("--prefer-native", action="store_true", help="native support before a newer verl")
    group.add_argument("--allow-unproved", action="store_true", help="also rows that nobody has installed yet")
