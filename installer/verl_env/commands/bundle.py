"""`verl-env bundle [LOCK|ROW] -o FILE`: everything that an environment is made from, as one file to carry."""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import fetch, output
from verl_env.builds.use import records_of, with_wheelhouse
from verl_env.bundle import tool
from verl_env.bundle.layout import TOOL, total_bytes
from verl_env.bundle.pieces import piece_of
from verl_env.bundle.plan import Cargo, Packed, pack
from verl_env.bundle.read import Bundle
from verl_env.bundle.unfinished import Unfinished, unfinished_manifest
from verl_env.bundle.write import Content, write_bundle
from verl_env.commands.built_wheels import add_built_arguments, with_built_wheels
from verl_env.commands.choosing import Reach, choose_reachable, read_situation
from verl_env.commands.choosing_arguments import add_choosing_arguments
from verl_env.commands.there import versions_at
from verl_env.errors import LockError, UsageError
from verl_env.lock.already import already_there
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.read import read_lock
from verl_env.matrix.load import load_pins, pins_path
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    from verl_env.bundle.tool import Needed
    from verl_env.commands.choosing import Situation
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.pins import Pin

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_LEAST_PIECE = 100_000  # bytes: fewer make thousands of files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to carry, and into which file."""
    parser.add_argument("what", nargs="?", metavar="LOCK|ROW", help="a lockfile or a row (default: the row that fits)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="FILE.tar (or FILE.tar.zst)")
    parser.add_argument("--split", type=_size, metavar="SIZE", help="numbered pieces of at most SIZE (500M, 4G)")
    parser.add_argument(
        "--minus", metavar="ENV|FREEZE", help="leave out what the target has: a Python, an environment or a freeze"
    )
    parser.add_argument("--with-python", action="store_true", help="carry a Python too (one of uv's own)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be carried, and write nothing")
    add_choosing_arguments(parser)
    add_built_arguments(parser, unasked="the default for a row; a lockfile stays as it is")


def _size(text: str) -> int:
    """Read a size in decimal units."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None or int(match[1]) * _UNITS[match[2]] < _LEAST_PIECE:
        raise argparse.ArgumentTypeError(f"`{text}` is no size of at least 100k, such as 500M or 4G")
    return int(match[1]) * _UNITS[match[2]]


def run(args: argparse.Namespace) -> Result:
    """Find every file, then write; killed or cut off, the same command goes on where it was."""
    target = _target(args.output)
    lock, situation, matrix = _lock(args)
    situation = replace(situation, indexes=with_wheelhouse(lock, situation.indexes))
    _refuse_what_cannot_be_carried(lock)
    left_out: tuple[Pin, ...] = ()
    if args.minus:
        left_out = already_there(lock.pins, versions_at(args.minus), lock.table.cuda)
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        python = None
        if args.with_python:
            from verl_env.bundle.python import pack_python

            python = pack_python(lock.table.python, Path(name))
        needed = _needed(target, args.split, lock, situation)
        gone = {pin.file for pin in left_out}
        wanted = tuple(pin for pin in lock.pins if pin.file not in gone)
        located = locate(wanted, lock.table.python, situation.indexes, situation.matrix.facts)
        others = tuple(dict.fromkeys((*(it.pin for it in needed), *lock.table.build)))
        urls = locate(others, tool.OLDEST_PYTHON, situation.indexes, situation.matrix.facts).urls
        lock = replace(lock, urls={**_places(lock), **located.urls})
        cargo = Cargo(lock=lock, needed=needed, urls=urls, left_out=left_out, matrix=matrix, python=python)
        packed = pack(replace(cargo, records=records_of(lock)))
        if args.dry_run:
            return _result(packed, (), dry=True)
        older = _older(target, args.split)
        if older and older.manifest == packed.manifest:
            return _result(packed, older.paths, dry=False)
        door = fetch.open_door(situation.indexes)
        output.note(f"{lock.table.title}: {human_bytes(_total(packed))} into {target}")
        contents = packed.contents | _from_older(older, packed)
        files = write_bundle(target, packed.manifest, contents, door, limit=args.split)
    return _result(packed, files, dry=False)


def _target(given: str) -> Path:
    """Take the name of the bundle; raises UsageError for one that would say what it is not."""
    path = Path(given).expanduser().absolute()
    if not path.name.endswith((".tar", ".tar.zst")) or path.is_dir():
        raise UsageError(
            f"`{given}` does not say what the bundle is",
            hint="name it FILE.tar, or FILE.tar.zst for tools that ask for that",
        )
    return path


def _lock(args: argparse.Namespace) -> tuple[Lock, Situation, tuple[Path, ...]]:
    """Read the lockfile, or lock the row; return also the files of the matrix that it comes from."""
    what = args.what
    if what and (what.endswith(".toml") or "/" in what):
        return read_lock(Path(what)), read_situation(args), ()
    if what:
        args.row = what
    situation = read_situation(args)
    entry = situation.matrix.entries[args.row] if args.row else None
    if entry is None:
        fit, pins, _ = choose_reachable(situation, Reach(), for_install=False)
        entry, header = fit.entry, pins.header
    else:
        machine = situation.node.machine.value if situation.node.machine else None
        asked = situation.wishes.python
        header = next((it for it in entry.variants(machine) if asked in (None, it.python)), None)  # type: ignore[assignment]
        if header is None:
            raise UsageError(
                f"row {entry.id} has no pins for Python {asked or 'any'} on {machine}", hint="see `matrix show`"
            )
    lock = build_lock(entry, load_pins(entry, header), situation.matrix.facts)
    extended = with_built_wheels(lock, situation, args, unasked=True)
    for note in extended.notes:
        output.note(f"note: {note}")
    return extended.lock, situation, (entry.path, pins_path(entry, header))


def _refuse_what_cannot_be_carried(lock: Lock) -> None:
    """Refuse a lock whose environment needs more than files with hashes."""
    captured = lock.table.captured
    if lock.table.editable or (captured and (captured.git or captured.patch)):
        what = "a checkout" if lock.table.editable else "repositories or a patch"
        raise LockError(
            f"the lock needs {what} beside its packages, which a bundle does not carry",
            hint="bundle the row it was made from, and carry the rest beside it",
        )


def _places(lock: Lock) -> dict[str, str]:
    """Return a place for every pin, also for those that are left out: PEP 751 wants one."""
    return {pin.file: lock.urls.get(pin.file) or pin.file for pin in lock.pins}


def _needed(target: Path, limit: int | None, lock: Lock, situation: Situation) -> tuple[Needed, ...]:
    """Return what verl-env needs: as an unfinished bundle of this lock has it, else resolved now."""
    begun = unfinished_manifest(target, limit)
    if begun and begun.digest == lock.table.digest:
        text = Unfinished(target, limit).member(begun, f"{TOOL}requirements.txt")
        wheels = {it.sha256: (it.size, it.path.removeprefix(TOOL)) for it in begun.members if it.path.startswith(TOOL)}
        if text is not None:
            return tool.read_requirements(text.decode(), wheels)
    return tool.resolve_needed(situation.indexes, lock.table.arch)


def _older(target: Path, limit: int | None) -> Bundle | None:
    """Open the finished bundle of this name, when there is one: what it holds is not fetched again."""
    first = target if limit is None else piece_of(target, 1)
    try:
        return Bundle(first) if first.is_file() else None
    except LockError:
        return None


def _from_older(older: Bundle | None, packed: Packed) -> dict[str, Content]:
    """Take the files that an older bundle has, by their hashes."""
    if older is None:
        return {}
    known = {it.sha256: it.path for it in older.manifest.members}
    fetched = (it for it in packed.manifest.members if packed.contents[it.path].data is None)
    return {it.path: Content(older=(older, known[it.sha256])) for it in fetched if it.sha256 in known}


def _total(packed: Packed) -> int:
    from verl_env.bundle.layout import render_manifest

    return total_bytes(render_manifest(packed.manifest), packed.manifest)


def _result(packed: Packed, files: tuple[Path, ...], *, dry: bool) -> Result:
    """Say what is in it, and how it is used."""
    manifest = packed.manifest
    data: dict[str, Any] = {
        "files": [str(it) for it in files],
        "bytes": _total(packed),
        "row": manifest.row,
        "digest": manifest.digest,
        "python": manifest.python,
        "members": len(manifest.members),
        "left_out": list(manifest.left_out),
        "changed": not dry,
    }
    left = f"; {len(manifest.left_out)} packages left out" if manifest.left_out else ""
    size = f"{human_bytes(data['bytes'])}, {len(manifest.members)} files{left}"
    if dry:
        return Result(data=data, text=f"would carry {manifest.title}: {size}")
    first = files[0]
    unpack = f"tar -xf {first.name} start.sh" if len(files) == 1 else f"cat {first.stem}.* | tar -xf - start.sh"
    lines = [
        f"{manifest.title}: {size}",
        *(str(it) for it in files[:3]),
        *([f"… {len(files)} pieces in all"] if len(files) > 3 else []),  # noqa: PLR2004 - as many as are shown
        f"its lock: {manifest.digest}",
        f"on a node with verl-env:    verl-env install --bundle {first.name}",
        f"on a node with nothing:     {unpack}; sh start.sh {first.name}",
    ]
    return Result(data=data, text="\n".join(lines))
