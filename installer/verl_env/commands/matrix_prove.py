"""`verl-env matrix prove ROW`: install it afresh from its pins, prove it, write the evidence."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import __version__, output, paths
from verl_env.commands.building import device_of
from verl_env.commands.matrix_show import find_entry
from verl_env.commands.proving import add_proof_arguments
from verl_env.environment.build import Plan, build_environment
from verl_env.environment.preflight import check_room, find_python
from verl_env.environment.surroundings import look_around
from verl_env.errors import MatrixError, UsageError
from verl_env.files import write_atomically
from verl_env.indexes import read_indexes
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import render_lock
from verl_env.matrix.evidence import EvidenceFile, render_evidence_file, with_evidence
from verl_env.matrix.load import load_matrix, load_pins, pins_path
from verl_env.matrix.pins import render_pins
from verl_env.matrix.rows import Evidence
from verl_env.node.probe import probe_node
from verl_env.output import Result, human_bytes
from verl_env.proof.levels import ON_GPU, STATUS_OF_LEVEL
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.environment.receipt import Receipt
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import Pins, PinsHeader
    from verl_env.node.facts import Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the row, and which of its variants."""
    parser.add_argument("row", metavar="ROW", help="a row's id")
    parser.add_argument("--python", metavar="X.Y", help="this Python (default: the row's first)")
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
    node = probe_node(folders={})
    with tempfile.TemporaryDirectory(prefix="verl-env-prove-", dir=_roomy()) as folder:
        cache = str(paths.uv_cache())
        os.environ |= {"VERL_ENV_HOME": folder, "UV_CACHE_DIR": cache}
        pins = load_pins(entry, header)
        receipt, size, count = _install(entry, pins, matrix, node, args)
        if args.keep:
            os.rename(folder, f"{folder}-kept")
            Path(folder).mkdir()
            output.note(f"kept: {folder}-kept")
    evidence = _evidence(receipt, header, node)
    if args.export:
        carried = EvidenceFile(row=entry.id, evidence=evidence, installed_bytes=size, installed_files=count)
        write_atomically(Path(args.export), render_evidence_file(carried))
    else:
        pins = replace(pins, header=replace(header, installed_bytes=size, installed_files=count))
        write_atomically(pins_path(entry, header), render_pins(pins))
        write_atomically(entry.path, with_evidence(entry.path.read_text(encoding="utf-8"), evidence))
    data: dict[str, Any] = {"row": entry.id, "evidence": to_plain(evidence), "installed_bytes": size}
    text = f"{entry.id} (Python {header.python}): {evidence.level}; {human_bytes(size)} in {count} files"
    return Result(data=data, text=text)


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


def _evidence(receipt: Receipt, header: PinsHeader, node: Node) -> Evidence:
    return Evidence(
        level=STATUS_OF_LEVEL.get(receipt.level, "resolved"),
        date=dt.datetime.now(dt.timezone.utc).date(),
        python=receipt.python,
        arch=header.arch,
        pins=header.digest,
        device=receipt.device,
        glibc=node.glibc.value if node.glibc else "unknown",
        by=f"verl-env {__version__}",
        shown={it.name: f"skipped: {it.said}" if it.skipped else it.said for it in receipt.shown if it.level in ON_GPU},
    )
