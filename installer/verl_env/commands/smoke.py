"""`verl-env smoke`: an environment's proofs, again, or further than before."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env import output
from verl_env.commands.proving import add_proof_arguments, proof_lines
from verl_env.environment.prove import Subject, prove, shown_by
from verl_env.environment.receipt import Proved, find_environment, now, with_proof, write_receipt
from verl_env.node.names import NO_DEVICE
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.environment.prove import Proof
    from verl_env.environment.receipt import Receipt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, how far, how long."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    add_proof_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Show as much as is asked for and possible here, and keep it in the receipt; raises SmokeError on a failure."""
    folder, receipt = find_environment(args.environment)
    proof = prove(subject_of(folder, receipt), args.level, seconds=args.time_limit)
    _keep(folder, receipt, proof)
    data = {
        "environment": folder.name,
        "asked": args.level,
        "level": proof.level,
        "device": proof.device or NO_DEVICE,
        "not_shown": proof.not_shown,
        "runs": [to_plain(run) for run in proof.runs],
    }
    return Result(data=data, text="\n".join(proof_lines(folder.name, proof)))


def subject_of(folder: Path, receipt: Receipt) -> Subject:
    """Return what there is to prove of an environment that stands."""
    return Subject(
        folder=folder,
        cuda=receipt.cuda,
        imports=receipt.imports,
        packages=receipt.set,
        settings=receipt.settings,
        exports=receipt.exports,
    )


def _keep(folder: Path, receipt: Receipt, proof: Proof) -> None:
    """Write what was shown into the receipt; an environment that belongs to somebody else stays as it is."""
    proved = Proved(
        level=proof.level,
        device=proof.device or NO_DEVICE,
        host=platform.node(),
        when=now(),
        shown=shown_by(proof),
    )
    try:
        write_receipt(folder, with_proof(replace(receipt), proved))
    except OSError as err:
        output.warn(f"the receipt does not say so: `{folder}` cannot be written ({err.strerror})")
