"""`verl-env detect`: what this node is, each value with its source."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from verl_env.node.arguments import add_node_arguments, node_from_arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from verl_env.output import Result

HELP = "show what this node is: driver, GPUs, glibc, Pythons, room"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what describes a node instead of measuring this one."""
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Measure or describe the node, and show it; what is wrong with it is in the answer, and the code 0."""
    from verl_env.node.render import render_node
    from verl_env.output import Result, paint
    from verl_env.records import to_plain

    node = node_from_arguments(args, names=_gpu_names(args), folders=_folders())
    text = render_node(
        node,
        dim=lambda words: paint(words, "dim", sys.stdout),
        strong=lambda words: paint(words, "bold", sys.stdout),
    )
    return Result(data=to_plain(node), text=text)


def _folders() -> dict[str, Path]:
    """Return what an installation would write to; nothing for a user without a home, who still has a node."""
    from verl_env import paths
    from verl_env.errors import UsageError

    try:
        return {"environments": paths.environments(), "uv cache": paths.uv_cache()}
    except UsageError:
        return {}


def _gpu_names(args: argparse.Namespace) -> Mapping[str, str]:
    """Return the matrix's GPU names; only a GPU that is named needs them."""
    if not args.gpu:
        return {}
    from verl_env.matrix.load import load_matrix

    return load_matrix(args.matrix).gpu_names()
