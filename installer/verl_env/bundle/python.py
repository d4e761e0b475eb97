"""A Python to carry: one of uv's own (python-build-standalone), which run wherever their folder is put."""

from __future__ import annotations

import hashlib
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.environment.preflight import minor_of, usable
from verl_env.errors import PreflightError
from verl_env.node.host import Host
from verl_env.node.interpreters import find_interpreters

if TYPE_CHECKING:
    from verl_env.node.facts import Interpreter

_SKIPPED = ("__pycache__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPython:
    """A packed Python: `name` of its folder, `executable` below the folder of Pythons, and its archive."""

    name: str
    version: str
    executable: str
    archive: Path
    size: int
    sha256: str


def pack_python(minor: str, folder: Path) -> CarriedPython:
    """Pack a Python of uv's into `folder`; raises PreflightError when there is none of this minor."""
    found = [it for it in usable(find_interpreters(Host())) if it.kind == "uv" and minor_of(it.version or "0") == minor]
    if not found:
        raise PreflightError(
            f"uv has no Python {minor} here to carry; Pythons of other makers do not run from another folder",
            hint=f"fetch one: uv python install {minor}, or leave out --with-python",
        )
    return _pack(found[0], folder)


def _pack(interpreter: Interpreter, folder: Path) -> CarriedPython:
    executable = Path(interpreter.path)
    root = executable.parent.parent
    archive = folder / f"{root.name}.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for base, folders, files in os.walk(root):
            folders[:] = sorted(it for it in folders if it not in _SKIPPED)
            linked = [it for it in folders if os.path.islink(f"{base}/{it}")]
            for name in sorted((*files, *linked)):
                tar.add(f"{base}/{name}", f"{root.name}/{os.path.relpath(f'{base}/{name}', root)}", filter=_plain)
    digest = hashlib.sha256()
    with archive.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return CarriedPython(
        name=root.name,
        version=interpreter.version or minor_of("0"),
        executable=f"{root.name}/{executable.relative_to(root).as_posix()}",
        archive=archive,
        size=archive.stat().st_size,
        sha256=digest.hexdigest(),
    )


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out time and owner: the same Python packs to the same bytes."""
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    return info


def unpack_python(archive: Path, pythons: Path) -> None:
    """Unpack a carried Python, whose hash was compared, into the folder of Pythons; by one rename."""
    name = archive.name.removesuffix(".tar")
    if (pythons / name).is_dir():
        return
    pythons.mkdir(parents=True, exist_ok=True)
    aside = pythons / f".{name}.{os.getpid()}"
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(aside, filter="data")
        else:  # before 3.10.12
            tar.extractall(aside)  # noqa: S202 - its hash was compared
    (aside / name).rename(pythons / name)
    aside.rmdir()
