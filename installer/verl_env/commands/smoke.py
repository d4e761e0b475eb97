"""`verl-env smoke`: an environment's proofs, again, or further than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.proving import add_proof_arguments, proof_data, proof_lines
from verl_env.environment.prove import keep_proof, prove, prove_only, subject_of
from verl_env.environment.receipt import find_environment
from verl_env.matrix.load import load_matrix
from verl_env.node.arguments import add_node_arguments, is_described, node_from_arguments
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.node.facts import Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, how far, how long."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    add_proof_arguments(parser)
    parser.add_argument(
        "--only", action="append", metavar="CHECK", help="only the check of this name, of any level (may be repeated)"
    )
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Show as much as is asked for and possible here, and keep it in the receipt; raises SmokeError on a failure."""
    folder, receipt = find_environment(args.environment)
    subject = subject_of(folder, receipt)
    if args.only:
        proof = prove_only(subject, tuple(args.only), seconds=args.time_limit)
    else:
        proof = prove(subject, args.level, seconds=args.time_limit, node=_described(args))
    if not is_described(args):
        keep_proof(folder, receipt, proof)
    data = {"environment": folder.name, "asked": args.level} | proof_data(proof)
    return Result(data=data, text="\n".join(proof_lines(folder.name, proof)))


def _described(args: argparse.Namespace) -> Node | None:
    """Return the node that the arguments describe, or None to take this one."""
    if not is_described(args):
        return None
    return node_from_arguments(args, names=load_matrix(args.matrix).gpu_names())
