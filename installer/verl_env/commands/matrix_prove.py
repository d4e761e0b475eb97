"""`verl-env matrix prove ROW`: install its pins afresh, or take an environment of them; prove it, write evidence."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import __version__, output, paths
from verl_env.commands.building import device_of
from verl_env.commands.matrix_show import find_entry
from verl_env.commands.proving import add_proof_arguments
from verl_env.environment.build import Plan, build_environment
from verl_env.environment.preflight import check_room, find_python
from verl_env.environment.prove import keep_proof, prove, shown_by, subject_of
from verl_env.environment.receipt import find_environment
from verl_env.environment.surroundings import look_around
from verl_env.errors import MatrixError, UsageError
from verl_env.files import write_atomically
from verl_env.indexes import read_indexes
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import render_lock
from verl_env.lock.read import read_lock
from verl_env.matrix.evidence import EvidenceFile, render_evidence_file, with_evidence
from verl_env.matrix.load import load_matrix, load_pins, pins_path
from verl_env.matrix.pins import render_pins
from verl_env.matrix.rows import Evidence
from verl_env.node.probe import probe_node
from verl_env.node.system import read_glibc
from verl_env.output import Result, human_bytes
from verl_env.proof.levels import ON_GPU, STATUS_OF_LEVEL
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.environment.receipt import Receipt, Shown
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import Pin, Pins, PinsHeader
    from verl_env.node.facts import Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row, and which of its variants."""
    parser.add_argument("row", metavar="ROW", help="a row's id")
    parser.add_argument("--python", metavar="X.Y", help="this Python (default: the row's first)")
    parser.add_argument(
        "--environment",
        metavar="NAME",
        help="prove this environment, which was made from the row's pins (default: install them afresh)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the environment (default: it is removed)")
    parser.add_argument(
        "--export", metavar="FILE", help="write the evidence to this file, to contribute; not to the row"
    )
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    add_proof_arguments(parser, "behaviour")


def run(args: argparse.Namespace) -> Result:
    """Prove one variant; the row's file gets the evidence, its pins the sizes that were measured."""
    matrix = load_matrix(args.matrix)
    entry = find_entry(matrix, args.row)
    header = _variant(entry, args.python)
    if not args.export and not os.access(entry.path, os.W_OK):
        hint = "prove with --export FILE, in a checkout, or with --matrix DIR"
        raise MatrixError(f"`{entry.path}` cannot be written", hint=hint)
    made = _standing(entry, header, args) if args.environment else _afresh(entry, header, matrix, args)
    evidence = _evidence(made, header)
    if args.export:
        carried = EvidenceFile(row=entry.id, evidence=evidence, installed_bytes=made.size, installed_files=made.count)
        write_atomically(Path(args.export), render_evidence_file(carried))
    else:
        if made.size:
            pins = load_pins(entry, header)
            sized = replace(header, installed_bytes=made.size, installed_files=made.count)
            write_atomically(pins_path(entry, header), render_pins(replace(pins, header=sized)))
        write_atomically(entry.path, with_evidence(entry.path.read_text(encoding="utf-8"), evidence))
    data: dict[str, Any] = {"row": entry.id, "evidence": to_plain(evidence), "installed_bytes": made.size}
    data["not_shown"] = list(made.not_shown)
    size = f"; {human_bytes(made.size)} in {made.count} files" if made.size else ""
    text = f"{entry.id} (Python {header.python}): {evidence.level} on {evidence.device}{size}"
    return Result(data=data, text="\n".join([text, *made.not_shown]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was proved of an environment: `size` and `count` on disk where all of the pins are in it, else 0."""

    level: str
    device: str
    python: str
    shown: tuple[Shown, ...]
    not_shown: tuple[str, ...]
    over: str = ""
    size: int = 0
    count: int = 0


def _afresh(entry: Entry, header: PinsHeader, matrix: Matrix, args: argparse.Namespace) -> Made:
    """Install the pins in a home of their own, prove them there, and remove them unless they are to be kept."""
    node = probe_node(folders={})
    with tempfile.TemporaryDirectory(prefix="verl-env-prove-", dir=_roomy()) as folder:
        cache = str(paths.uv_cache())
        os.environ |= {"VERL_ENV_HOME": folder, "UV_CACHE_DIR": cache}
        receipt, size, count = _install(entry, load_pins(entry, header), matrix, node, args)
        if args.keep:
            os.rename(folder, f"{folder}-kept")
            Path(folder).mkdir()
            output.note(f"kept: {folder}-kept")
    return Made(
        level=receipt.level,
        device=receipt.device,
        python=receipt.python,
        shown=receipt.shown,
        not_shown=tuple(note for note in receipt.notes if note.startswith("not shown")),
        size=size,
        count=count,
    )


def _standing(entry: Entry, header: PinsHeader, args: argparse.Namespace) -> Made:
    """Prove an environment that stands, when it was made from exactly these pins."""
    folder, receipt = find_environment(args.environment)
    lock = read_lock(folder / f"pylock.{receipt.row}.toml")
    changed = lock.table.editable or lock.table.captured or lock.table.digest != receipt.lock_digest
    if changed or _files(lock.pins) != _files(load_pins(entry, header).pins):
        raise UsageError(
            f"{folder.name} was not made from the pins that row `{entry.id}` has for Python {header.python}",
            hint=f"it is of row `{receipt.row}`, Python {receipt.python}; `verl-env list` has the others",
        )
    proof = prove(subject_of(folder, receipt), args.level, seconds=args.time_limit)
    keep_proof(folder, receipt, proof)
    size, count = (0, 0) if receipt.base else _measure(folder)
    return Made(
        level=proof.level or "files",
        device=proof.device or device_of(probe_node(folders={}, interpreters=False)),
        python=receipt.python,
        shown=shown_by(proof),
        not_shown=proof.notes,
        over=_described(receipt),
        size=size,
        count=count,
    )


def _files(pins: tuple[Pin, ...]) -> set[tuple[str, str, str, str]]:
    return {(pin.name, pin.version, pin.file, pin.sha256) for pin in pins}


def _described(receipt: Receipt) -> str:
    """Say what of a base an environment rests on: its proof is not of the pinned files alone."""
    if receipt.base is None:
        return ""
    used = [name for name in receipt.base.used if name.split(" ")[0] in receipt.set]
    count = f"{len(receipt.base.used)} of {receipt.packages} packages are those of a Python {receipt.base.version}"
    return f"{count}, among them {', '.join(used)}" if used else count


def _variant(entry: Entry, python: str | None) -> PinsHeader:
    machine = os.uname().machine
    for header in entry.variants(machine):
        if python in (None, header.python):
            return header
    raise UsageError(
        f"row `{entry.id}` has no pins for Python {python or 'any'} on {machine}",
        hint=f"make them: verl-env matrix resolve {entry.id}",
    )


def _roomy() -> str:
    """Return a folder on the cache's file system, so that the environment is hard links and not a second copy."""
    cache = paths.uv_cache()
    cache.mkdir(parents=True, exist_ok=True)
    return str(cache.parent)


def _install(
    entry: Entry, pins: Pins, matrix: Matrix, node: Node, args: argparse.Namespace
) -> tuple[Receipt, int, int]:
    """Build the environment as `install` does, and measure it."""
    lock = build_lock(entry, pins, matrix.facts)
    folder = paths.environments() / lock.name
    check_room(lock.table, folder)
    located = locate(pins.pins, pins.header.python, read_indexes(args.index), matrix.facts)
    lock = replace(lock, urls=located.urls)
    receipt = build_environment(
        Plan(
            lock=lock,
            lock_text=render_lock(lock),
            folder=folder,
            interpreter=find_python(pins.header.python),
            index_options=located.options,
            around=look_around(node, measured=True),
            device=device_of(node),
            level=args.level,
            job_seconds=args.time_limit,
        )
    )
    return receipt, *_measure(folder)


def _measure(folder: Path) -> tuple[int, int]:
    """Return the bytes on disk and the number of files and folders (inodes) of an environment."""
    size = count = 0
    for place, _, files in os.walk(folder):
        count += 1 + len(files)
        size += sum(os.lstat(os.path.join(place, file)).st_blocks * 512 for file in files)
    return size, count


def _evidence(made: Made, header: PinsHeader) -> Evidence:
    return Evidence(
        level=STATUS_OF_LEVEL.get(made.level, "resolved"),
        date=dt.datetime.now(dt.timezone.utc).date(),
        python=made.python,
        arch=header.arch,
        pins=header.digest,
        device=made.device,
        glibc=found.value if (found := read_glibc()) else "unknown",
        by=f"verl-env {__version__}",
        over=made.over,
        shown={it.name: f"skipped: {it.said}" if it.skipped else it.said for it in made.shown if it.level in ON_GPU},
    )
