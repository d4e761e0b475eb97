"""`verl-env matrix check`: everything that can be held against something else, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.errors import MatrixError
from verl_env.matrix.check import check_matrix
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond what every command takes."""


def run(args: argparse.Namespace) -> Result:
    """Check; raises MatrixError with every fault at once."""
    matrix = load_matrix(args.matrix)
    faults: list[str] = []
    for entry in matrix.entries.values():
        for header in entry.pins:
            try:
                pins = load_pins(entry, header)
            except MatrixError as err:
                faults += [f"{entry.id}: {err.message}", *err.details]
            else:
                faults += check_matrix(entry, pins, matrix.facts)
        faults += check_matrix(entry, None, matrix.facts)
    if faults:
        error = MatrixError(f"the matrix has {len(faults)} faults", details=tuple(faults), hint="mend each one named")
        error.data = {"faults": faults}
        raise error
    count = sum(len(entry.pins) for entry in matrix.entries.values())
    text = f"{len(matrix.entries)} rows and {count} pins hold together"
    return Result(data={"rows": len(matrix.entries), "pins": count, "faults": []}, text=text)
