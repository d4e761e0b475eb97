"""`verl-env matrix new`: a row's skeleton from a verl and an engine release."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from verl_env import output
from verl_env.errors import MatrixError, UsageError
from verl_env.files import write_atomically
from verl_env.indexes import read_indexes
from verl_env.matrix.load import load_matrix, shipped
from verl_env.matrix.new import Draft, exact_pin, fill_row
from verl_env.matrix.new_text import render_row
from verl_env.matrix.rows import ENGINES
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.releases import Metadata
    from verl_env.matrix.upstream import Upstream

_WORD = re.compile(r"(vllm|sglang)(?:==(.+))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the row is about."""
    parser.add_argument("--engine", metavar="NAME[==VERSION]", help="vllm or sglang (version: what verl pins)")
    parser.add_argument("--verl", metavar="VERSION", help="verl (default: the newest release)")
    parser.add_argument("--torch", metavar="VERSION", help="torch, where neither verl nor an engine pins it")
    parser.add_argument("--python", metavar="X.Y", action="append", help="this Python only; may be given again")
    parser.add_argument("--id", metavar="ID", help="the row's id (default: made of its versions)")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    parser.add_argument("--dry-run", action="store_true", help="print the row, write nothing")


def run(args: argparse.Namespace) -> Result:
    """Ask the index, fill the row, write it; a row that is there is left alone."""
    from verl_env.matrix.upstream import open_upstream  # HTTP and its parsers: of this action alone

    matrix = load_matrix(args.matrix)
    upstream = open_upstream(read_indexes(args.index), matrix.facts)
    verl = _metadata(upstream, "verl", _checked(args.verl) if args.verl else _newest(upstream))
    engine = _engine(args.engine, verl, upstream) if args.engine else None
    files: tuple[str, ...] = ()
    if engine:
        listed = upstream.releases(engine.name).get(Version(engine.version), ())
        files = tuple(it.name for it in listed if it.name.endswith(".whl"))
    draft = Draft(
        verl=verl,
        engine=engine,
        engine_files=files,
        pythons=tuple(args.python or ()),
        torch=_checked(args.torch) if args.torch else None,
    )
    filled = fill_row(draft, matrix.facts)
    row_id = args.id or filled.id
    text = render_row(draft, replace(filled, id=row_id))
    for note in filled.notes:
        output.warn(note)
    path = (Path(args.matrix).expanduser() if args.matrix else shipped()) / "rows" / f"{row_id}.toml"
    data = {"id": row_id, "path": str(path), "text": text, "notes": list(filled.notes)}
    if args.dry_run:
        return Result(data=data, text=text.rstrip("\n"))
    if path.exists() or row_id in matrix.entries:
        raise UsageError(f"there is a row `{row_id}` already", hint="give the new one another id: --id ID")
    if not os.access(path.parent if path.parent.exists() else path.parent.parent, os.W_OK):
        raise MatrixError(f"`{path.parent}` cannot be written", hint="work in a checkout, or with --matrix DIR")
    write_atomically(path, text)
    there = f" --matrix {args.matrix}" if args.matrix else ""
    return Result(data=data, text=f"{path}\nnext: verl-env matrix resolve {row_id}{there}")


def _engine(word: str, verl: Metadata, upstream: Upstream) -> Metadata:
    """Return the engine that is asked for; without a version, the one that verl pins."""
    found = _WORD.fullmatch(word.strip())
    if found is None:
        raise UsageError(f"`{word}` is no engine", hint=f"write {' or '.join(f'{it}==VERSION' for it in ENGINES)}")
    name, version = found[1], found[2] or exact_pin(verl, found[1], found[1])
    if version is None:
        raise UsageError(f"verl {verl.version} pins no {name}", hint=f"say which: --engine {name}==VERSION")
    return _metadata(upstream, name, _checked(version))


def _metadata(upstream: Upstream, package: str, version: str) -> Metadata:
    if found := upstream.metadata(package, version):
        return found
    near = sorted((it for it in upstream.releases(package) if not it.is_prerelease), reverse=True)[:5]
    raise UsageError(
        f"the index has no wheel of {package} {version}",
        hint=f"its newest are {', '.join(str(it) for it in near) or 'none'}",
    )


def _newest(upstream: Upstream) -> str:
    return str(max((it for it in upstream.releases("verl") if not it.is_prerelease), default="0"))


def _checked(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as err:
        raise UsageError(f"`{version}` is no version", hint="write it as the index does, such as 0.9.1") from err
