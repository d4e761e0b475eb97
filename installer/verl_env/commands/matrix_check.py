"""`verl-env matrix check`: everything that can be held against something else, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.builds.matrix_files import record_faults
from verl_env.errors import MatrixError
from verl_env.matrix.check import check_matrix, notes_of
from verl_env.matrix.load import load_pins, read_matrix, stray_files
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import PinsHeader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond what every command takes."""


def run(args: argparse.Namespace) -> Result:
    """Check; raises MatrixError with every fault at once."""
    matrix, unread = read_matrix(args.matrix)
    faults = [*unread, *stray_files(matrix, args.matrix)]
    for entry in matrix.entries.values():
        faults += _faults(entry, matrix.facts)
    faults += record_faults(matrix)
    notes = [note for entry in matrix.entries.values() for note in notes_of(entry)]
    count = sum(len(entry.pins) for entry in matrix.entries.values())
    data = {"rows": len(matrix.entries), "pins": count, "faults": faults, "notes": notes}
    if faults:
        error = MatrixError(f"the matrix has {len(faults)} faults", details=tuple(faults), hint="mend each one named")
        error.data = data
        raise error
    lines = [*(f"note: {note}" for note in notes), f"{len(matrix.entries)} rows and {count} pins hold together"]
    return Result(data=data, text="\n".join(lines))


def _faults(entry: Entry, facts: Facts) -> list[str]:
    """Return the faults of one row and of all its pins."""
    return [*check_matrix(entry, None, facts), *(it for head in entry.pins for it in _pins_faults(entry, head, facts))]


def _pins_faults(entry: Entry, header: PinsHeader, facts: Facts) -> list[str]:
    """Return the faults of one variant's pins, or why they cannot be read."""
    try:
        return check_matrix(entry, load_pins(entry, header), facts)
    except MatrixError as err:
        return [f"{entry.id}: {err.message}", *err.details]
