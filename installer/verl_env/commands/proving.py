"""What every command that proves something shares: its arguments, and how a proof reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.node.names import NO_DEVICE
from verl_env.proof.levels import LEVELS
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.environment.prove import Proof


def add_proof_arguments(group: argparse._ActionsContainer, level: str = "imports") -> None:
    """Add how far to go and how long each step may take."""
    group.add_argument("--level", choices=LEVELS, default=level, help=f"how far to prove it (default: {level})")
    group.add_argument(
        "--time-limit",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="limit of each import or check (600)",
    )


def proof_data(proof: Proof) -> dict[str, Any]:
    """Return a proof as scripts read it; `level` is null when only some checks were asked for."""
    return {
        "level": proof.level,
        "device": proof.device or NO_DEVICE,
        "not_shown": proof.not_shown,
        "runs": [to_plain(run) for run in proof.runs],
        "findings": [to_plain(it) for it in proof.findings],
    }


def proof_lines(name: str, proof: Proof) -> list[str]:
    """Return a line a run, then what was reached and what was not."""
    width = max((len(run.name) for run in proof.runs), default=0)
    lines = []
    for run in proof.runs:
        said = "" if run.level == "imports" else f"{'skipped: ' if run.skipped else ''}{run.last_line}"
        lines.append(f"{run.level:<9}  {run.name:<{width}}  {run.seconds:6.1f} s  {said}".rstrip())
    skipped = [run for run in proof.runs if run.skipped]
    passed = f"{len(proof.runs) - len(skipped)} proofs passed" + (f", {len(skipped)} skipped" if skipped else "")
    device = f" on {proof.device}" if proof.device else ""
    reached = f"; level reached: {proof.level}" if proof.level else ""
    return [*lines, f"{passed} in {name}{reached}{device}", *proof.notes]
