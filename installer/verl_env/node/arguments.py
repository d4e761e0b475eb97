"""The arguments by which a command is told of another node than the one it runs on."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from verl_env.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from verl_env.node.facts import Node

_NOTHING: Mapping[str, Path] = MappingProxyType({})


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a node; without any of them this one is measured."""
    group = parser.add_argument_group("describe another node (default: measure this one)")
    group.add_argument("--node", metavar="FILE", help="a node's `detect --json`, from a file (- for stdin)")
    group.add_argument("--driver", metavar="VERSION", help="kernel driver, such as 580.95.05")
    group.add_argument("--gpu", metavar="NAME", help="GPUs by name, such as h200 or 8xh200,a100")
    group.add_argument("--compute-capability", metavar="X.Y", help="GPUs by compute capability, such as 9.0")
    group.add_argument("--glibc", metavar="VERSION", help="glibc version, such as 2.35")
    group.add_argument("--arch", metavar="NAME", help="x86_64 or aarch64 (default: as here)")


def is_described(args: argparse.Namespace) -> bool:
    """Whether any argument describes a node."""
    return any((args.node, args.driver, args.gpu, args.compute_capability, args.glibc, args.arch))


def node_from_arguments(
    args: argparse.Namespace,
    *,
    names: Mapping[str, str],
    folders: Mapping[str, Path] = _NOTHING,
    interpreters: bool = True,
) -> Node:
    """Return the node that the arguments describe, or measure this one.

    `names` are GPU names with their compute capabilities; `folders` are looked at when this node is measured.
    """
    if not is_described(args):
        from verl_env.node.probe import probe_node

        return probe_node(folders=folders, interpreters=interpreters)
    from verl_env.node.describe import describe, read_node_file

    if args.node:
        if is_described_in_words(args):
            raise UsageError(
                "`--node` describes the whole node, and so do the other arguments",
                hint="leave out --node, or --driver, --gpu, --compute-capability, --glibc and --arch",
            )
        return read_node_file(_read(args.node))
    return describe(
        driver=args.driver,
        gpus=_split(args.gpu),
        compute_capabilities=_split(args.compute_capability),
        glibc=args.glibc,
        machine=args.arch or os.uname().machine,
        names=names,
    )


def is_described_in_words(args: argparse.Namespace) -> bool:
    """Whether a single fact is given, and not only a file."""
    return any((args.driver, args.gpu, args.compute_capability, args.glibc, args.arch))


def _split(text: str | None) -> list[str]:
    """Return the parts between commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _read(name: str) -> str:
    """Read the node file, or stdin for `-`."""
    import sys

    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        said = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"cannot read the node file `{name}`: {said}", hint="name a file made by detect --json"
        ) from err
