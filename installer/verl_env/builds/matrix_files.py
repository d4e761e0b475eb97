"""The matrix's own records of builds: `builds/` beside a row's `rows/`. An edge: reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.builds.proven import Proven, parse_proven, proven_faults

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.matrix.matrix import Entry, Matrix


def builds_folder(entry: Entry) -> Path:
    """Return where the records of a row's builds lie."""
    return entry.path.parent.parent / "builds"


def proven_of(entry: Entry) -> tuple[Proven, ...]:
    """Return the records of a row's builds; what cannot be read is `matrix check`'s to say."""
    read = (_read(path) for path in sorted(builds_folder(entry).glob(f"{entry.id}-*.json")))
    return tuple(it for it in read if it and it.row == entry.id)


def _read(path: Path) -> Proven | None:
    try:
        return parse_proven(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def record_faults(matrix: Matrix) -> list[str]:
    """Hold every record against its row."""
    faults = []
    for folder in sorted({builds_folder(entry) for entry in matrix.entries.values()}):
        for path in sorted(folder.glob("*.json")):
            faults += [f"builds/{path.name}: {fault}" for fault in _faults_of(path, matrix)]
    return faults


def _faults_of(path: Path, matrix: Matrix) -> list[str]:
    try:
        proven = parse_proven(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        return [str(err)]
    entry = matrix.entries.get(proven.row)
    if entry is None or path.name != proven.file_name:
        return [
            f"it is the record of `{proven.file_name}`, and no row is called so"
            if entry is None
            else f"name it {proven.file_name}"
        ]
    return proven_faults(proven, entry.row)
