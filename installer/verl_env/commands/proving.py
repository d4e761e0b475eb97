"""The arguments of every command that proves something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.proof.levels import LEVELS

if TYPE_CHECKING:
    import argparse


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
