"""A wheel file: its name, its local version label, its contents. An edge only in that it reads and writes zips.

The label says what a wheel was compiled against (`2.8.3+cu130torch2.11`): two wheels of one release for two torches
are two versions, as PyTorch's own are (PEP 440, local version labels).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from verl_env.builds.failing import BuildError

if TYPE_CHECKING:
    from pathlib import Path

_WHEN = (1980, 1, 1, 0, 0, 0)  # the first day that a zip knows: the same contents are the same bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """The parts of a wheel's file name; `distribution` and `tags` as they are written there."""

    distribution: str
    version: str
    tags: str

    @property
    def package(self) -> str:
        """The normalised name (PEP 503)."""
        return str(canonicalize_name(self.distribution))

    @property
    def start(self) -> str:
        """What its dist-info and data folders begin with."""
        return f"{self.distribution}-{self.version}"

    @property
    def file(self) -> str:
        """The file name."""
        return f"{self.start}-{self.tags}.whl"


def name_of(file: str) -> WheelName:
    """Take a wheel's name apart; raises BuildError for what is none."""
    try:
        parse_wheel_filename(file)
    except InvalidWheelFilename as err:
        raise BuildError(f"`{file}` is not a wheel's name: {err}") from err
    distribution, version, tags = file.removesuffix(".whl").split("-", 2)
    return WheelName(distribution=distribution, version=version, tags=tags)


def relabel(wheel: Path, label: str, folder: Path) -> Path:
    """Write the wheel with a local version label into `folder`, and return it; name, metadata and RECORD agree."""
    old = name_of(wheel.name)
    if Version(old.version).local:
        raise BuildError(f"`{wheel.name}` has a label of its own already, and should get `+{label}`")
    new = WheelName(distribution=old.distribution, version=f"{old.version}+{label}", tags=old.tags)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(folder / new.file, "w", zipfile.ZIP_DEFLATED) as target:
        infos = sorted((it for it in source.infolist() if not it.is_dir()), key=lambda it: _place(it.filename, old))
        rows = []
        for info in infos:
            name = _renamed(info.filename, old, new)
            if name == f"{new.start}.dist-info/RECORD":
                continue
            content = source.read(info)
            if name == f"{new.start}.dist-info/METADATA":
                content = _with_version(content, new.version)
            rows.append((name, _record_hash(content), str(len(content))))
            target.writestr(_entry(name, info.external_attr), content)
        record = f"{new.start}.dist-info/RECORD"
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        target.writestr(_entry(record, 0o100644 << 16), text.getvalue())
    return folder / new.file


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel as it would be installed below one folder; raises BuildError for a path that leads out of it."""
    top = folder.resolve()
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            name = _installed(info.filename)
            if name is None or info.is_dir():
                continue
            path = (folder / name).resolve()
            if not path.is_relative_to(top):
                raise BuildError(f"`{wheel.name}` has a path that leads out of it: `{info.filename}`")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(info))


def _installed(name: str) -> str | None:
    """Return where a member of a wheel is installed; None for what goes elsewhere than among the modules (PEP 427)."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, inside = rest.partition("/")
    return inside if kind in ("platlib", "purelib") else None


def _place(name: str, old: WheelName) -> tuple[bool, str]:
    """Sort the dist-info to the end, where installers look for it first (PEP 427)."""
    return name.startswith(f"{old.start}.dist-info/"), name


def _renamed(name: str, old: WheelName, new: WheelName) -> str:
    for end in (".dist-info", ".data"):
        if name.startswith(f"{old.start}{end}/"):
            return f"{new.start}{end}{name.removeprefix(f'{old.start}{end}')}"
    return name


def _with_version(metadata: bytes, version: str) -> bytes:
    """Put the version into the metadata's head; the description below it is left alone."""
    head, blank, body = metadata.partition(b"\n\n")
    lines = [b"Version: " + version.encode() if line.startswith(b"Version: ") else line for line in head.split(b"\n")]
    return b"\n".join(lines) + blank + body


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _entry(name: str, attributes: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_WHEN)
    entry.external_attr = attributes
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
