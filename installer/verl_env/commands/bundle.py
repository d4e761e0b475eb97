"""`verl-env bundle [LOCK|ROW] -o FILE`: everything that an environment is made from, as one file to carry."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.bundle.plan import Packed
from verl_env.commands.built_wheels import add_built_arguments, with_built_wheels
from verl_env.commands.bundling import Order, bundle_lock, bytes_of
from verl_env.commands.choosing import Reach, choose_reachable, read_situation
from verl_env.commands.choosing_arguments import add_choosing_arguments
from verl_env.commands.there import versions_at
from verl_env.errors import UsageError
from verl_env.lock.already import already_there
from verl_env.lock.build import build_lock
from verl_env.lock.read import read_lock
from verl_env.matrix.load import load_pins, pins_path
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
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
    left_out: tuple[Pin, ...] = ()
    if args.minus:
        left_out = already_there(lock.pins, versions_at(args.minus), lock.table.cuda)
    order = Order(
        target=target,
        lock=lock,
        indexes=situation.indexes,
        facts=situation.matrix.facts,
        matrix=matrix,
        left_out=left_out,
        split=args.split,
        with_python=args.with_python,
    )
    packed, files = bundle_lock(order, dry=args.dry_run)
    return _result(packed, files, dry=args.dry_run)


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


def _result(packed: Packed, files: tuple[Path, ...], *, dry: bool) -> Result:
    """Say what is in it, and how it is used."""
    manifest = packed.manifest
    data: dict[str, Any] = {
        "files": [str(it) for it in files],
        "bytes": bytes_of(packed),
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
