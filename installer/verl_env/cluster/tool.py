"""verl-env as one small archive for nodes that have none: its own files, and the Python files of what it imports."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from verl_env.bundle.tool import own_files, own_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip can say
_BACKPORTS = ("exceptiongroup", "tomli")  # for Python 3.10, and installed only there
_NOT_NEEDED = ("uv",)  # a program of one architecture; what installs brings its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The bytes of a zip, and their sha256 in hex; the same files give the same bytes. `oldest` is a Python's minor."""

    content: bytes
    digest: str
    oldest: tuple[int, int]


def pack_tool() -> Archive:
    """Pack the verl-env that runs, with its dependencies as they are installed here; compiled modules are left out."""
    packed, needed = io.BytesIO(), _closure()
    files = dict(_files(needed)) | {name: path.read_bytes() for name, path in own_files()}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    content = packed.getvalue()
    oldest = (3, 10) if all(it in needed for it in _BACKPORTS) else (3, 11)
    return Archive(content=content, digest=hashlib.sha256(content).hexdigest(), oldest=oldest)


def _files(needed: Mapping[str, metadata.Distribution]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of every distribution that verl-env needs, for whichever Python a node has."""
    for distribution in needed.values():
        for file in distribution.files or ():
            path = PurePosixPath(file)
            inside = not path.is_absolute() and ".." not in path.parts and "__pycache__" not in path.parts
            if inside and path.suffix not in (".so", ".pyc"):
                yield path.as_posix(), file.read_binary()


def _closure() -> dict[str, metadata.Distribution]:
    """Return what verl-env needs and what that needs, by name; without what is not installed here."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [Requirement(it) for it in own_requirements()]
    while wanted:
        name = canonicalize_name(wanted.pop().name)
        if name in found or name in _NOT_NEEDED:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a backport that this Python does without
        lines = found[name].requires or ()
        wanted += [it for line in lines if "extra" not in str((it := Requirement(line)).marker or "")]
    return found
