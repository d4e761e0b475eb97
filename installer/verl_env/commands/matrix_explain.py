"""`verl-env matrix explain`: every row against a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.choosing import (
    Reach,
    choose_row,
    explained,
    read_situation,
    refusal,
)
from verl_env.commands.choosing_arguments import add_choosing_arguments
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.fit import Fit

NOT_COVERED = (
    "Megatron: the default index has no apex and Transformer Engine as verl needs them; on verl's own image, "
    "`verl-env install --base PYTHON` rests on what the image has"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what describes the node and narrows the choice."""
    add_choosing_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Choose without the network, and show each row's verdict; exits as `install` would when nothing fits."""
    situation = read_situation(args)
    choice = choose_row(situation, Reach())
    data = explained(situation, choice) | {"not_covered": [NOT_COVERED]}
    lines = [line for fit in choice.fits for line in _lines(fit, chosen=fit is choice.chosen)]
    if choice.chosen is None:
        error = refusal(situation, choice)
        error.data = data
        raise error
    chosen = data["chosen"]
    head = (
        f"chosen: {chosen['id']} ({chosen['title']}), Python {chosen['python']}, {chosen['arch']}, "
        f"{chosen['support']}, {chosen['status']}"
    )
    notes = (f"  note: {it}" for it in chosen["notes"])
    return Result(data=data, text="\n".join([head, *notes, "", *lines, "", f"not covered: {NOT_COVERED}"]))


def _lines(fit: Fit, *, chosen: bool) -> list[str]:
    """Write one row: its verdict, then each reason."""
    mark = "->" if chosen else "  "
    return [f"{mark} {fit.entry.id}: {fit.verdict}", *(f"     {reason}" for reason in fit.reasons)]
