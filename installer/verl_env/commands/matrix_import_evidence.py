"""`verl-env matrix import-evidence FILE`: evidence of someone else's machine, checked and added to its row."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.commands.matrix_show import find_entry
from verl_env.errors import MatrixError, UsageError
from verl_env.files import write_atomically
from verl_env.matrix.evidence import evidence_faults, parse_evidence_file, with_evidence
from verl_env.matrix.load import load_matrix, load_pins, pins_path
from verl_env.matrix.pins import render_pins
from verl_env.matrix.status import status_of
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.evidence import EvidenceFile
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import PinsHeader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, and whether to write."""
    parser.add_argument("file", metavar="FILE", help="made by `matrix prove --export`")
    parser.add_argument("--dry-run", action="store_true", help="check it, write nothing")


def run(args: argparse.Namespace) -> Result:
    """Check the evidence against the row's pins; add it when nothing speaks against it."""
    matrix = load_matrix(args.matrix)
    found = parse_evidence_file(_read(args.file), args.file)
    entry = find_entry(matrix, found.row)
    header = _variant(entry, found)
    today = dt.datetime.now(dt.timezone.utc).date()
    if faults := evidence_faults(found.evidence, entry, header, matrix.facts, today):
        raise MatrixError(
            f"`{args.file}` is no evidence for row `{entry.id}`",
            details=tuple(faults),
            hint=f"prove the row as it is now: verl-env matrix prove {entry.id} --export FILE",
        )
    before = status_of(entry.row, header)
    after = max(before, found.evidence.level, key=_rank)
    if not args.dry_run:
        _write(entry, header, found)
    text = f"{entry.id} (Python {header.python} on {header.arch}): {before} -> {after}, device {found.evidence.device}"
    data = {"row": entry.id, "evidence": to_plain(found.evidence), "status_before": before, "status": after}
    return Result(data=data, text=text)


def _rank(status: str) -> int:
    from verl_env.matrix.status import LEVELS

    return LEVELS.index(status) if status in LEVELS else len(LEVELS)


def _variant(entry: Entry, found: EvidenceFile) -> PinsHeader:
    """Return the pins of the Python and architecture that the evidence is of."""
    minor = found.evidence.python.rpartition(".")[0]
    for header in entry.pins:
        if (header.python, header.arch) == (minor, found.evidence.arch):
            return header
    raise UsageError(
        f"row `{entry.id}` has no pins for Python {minor} on {found.evidence.arch}",
        hint=f"ask for the pins file too, and put it into {entry.path.parent.parent / 'pins'}",
    )


def _write(entry: Entry, header: PinsHeader, found: EvidenceFile) -> None:
    """Add the evidence to the row; the sizes go to the pins where nobody has measured them."""
    if not os.access(entry.path, os.W_OK):
        raise MatrixError(f"`{entry.path}` cannot be written", hint="import in a checkout, or with --matrix DIR")
    if not header.installed_bytes and found.installed_bytes:
        pins = load_pins(entry, header)
        sized = replace(header, installed_bytes=found.installed_bytes, installed_files=found.installed_files)
        measured = replace(pins, header=sized)
        write_atomically(pins_path(entry, header), render_pins(measured))
    write_atomically(entry.path, with_evidence(entry.path.read_text(encoding="utf-8"), found.evidence))


def _read(name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        said = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read `{name}`: {said}", hint="name a file made by `matrix prove --export`") from err
