"""What goes into a bundle, in which order, and where each file comes from. Reads; fetches and writes nothing large."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import __version__
from verl_env.bundle import layout
from verl_env.bundle.layout import BUILDS, MATRIX, PYTHON, START, TOOL, WHEELS, Manifest, Member
from verl_env.bundle.python import CarriedPython
from verl_env.bundle.tool import Needed, own_wheel, render_requirements
from verl_env.bundle.write import Content
from verl_env.lock.lockfile import Lock, render_lock
from verl_env.matrix.pins import Pin

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD_WIDTH = 15  # digits that start.sh leaves for a size, so that the script's own size is known beforehand


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """What to carry. `lock` has a URL for every pin; `urls` has those of what verl-env needs, by file name.

    `records` are those of the lock's built wheels, each in the folder of its key.
    """

    lock: Lock
    needed: tuple[Needed, ...]
    urls: Mapping[str, str]
    left_out: tuple[Pin, ...] = ()
    matrix: tuple[Path, ...] = ()
    python: CarriedPython | None = None
    records: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The list of contents, and where each comes from, by path."""

    manifest: Manifest
    contents: dict[str, Content] = field(default_factory=dict)


def pack(cargo: Cargo) -> Packed:
    """Lay everything out; verl-env comes first, so that a node unpacks it without reading all wheels."""
    members: list[Member] = []
    contents: dict[str, Content] = {}

    def add(path: str, content: Content, size: int, sha256: str) -> None:
        members.append(Member(path=path, size=size, sha256=sha256))
        contents[path] = content

    def add_bytes(path: str, data: bytes) -> None:
        add(path, Content(data=data), len(data), hashlib.sha256(data).hexdigest())

    own = own_wheel()
    add_bytes(f"{TOOL}requirements.txt", render_requirements(cargo.needed, own).encode())
    add_bytes(f"{TOOL}{own[0]}", own[1])
    for it in cargo.needed:
        add(f"{TOOL}{it.pin.file}", _from(cargo.urls[it.pin.file]), it.pin.size, it.pin.sha256)
    if cargo.python:
        it_is = cargo.python
        add(f"{PYTHON}{it_is.name}.tar", Content(path=it_is.archive), it_is.size, it_is.sha256)
    first = len(members)
    add_bytes(cargo.lock.file_name, render_lock(cargo.lock).encode())
    for path in cargo.matrix:
        add_bytes(f"{MATRIX}{path.parent.name}/{path.name}", path.read_bytes())
    for path in cargo.records:
        add_bytes(f"{BUILDS}{path.parent.name}.json", path.read_bytes())
    gone = {pin.file for pin in cargo.left_out}
    for pin in _once((*cargo.lock.table.build, *cargo.lock.pins)):
        if pin.file not in gone:
            url = cargo.lock.urls.get(pin.file) or cargo.urls[pin.file]
            add(f"{WHEELS}{pin.file}", _from(url), pin.size, pin.sha256)
    return _with_start(_manifest(cargo, tuple(members)), contents, first)


def _from(url: str) -> Content:
    """Return a file's origin: paths that uv names are files here."""
    return Content(url=url) if "://" in url else Content(path=Path(url))


def _once(pins: Iterable[Pin]) -> Iterable[Pin]:
    return {pin.file: pin for pin in pins}.values()


def _manifest(cargo: Cargo, members: tuple[Member, ...]) -> Manifest:
    table = cargo.lock.table
    return Manifest(
        schema=layout.SCHEMA,
        by=f"verl-env {__version__}",
        row=table.row,
        title=table.title,
        digest=table.digest,
        lock=cargo.lock.file_name,
        python=table.python,
        arch=table.arch,
        members=members,
        left_out=tuple(f"{pin.name} {pin.version}" for pin in cargo.left_out),
        interpreter=cargo.python.executable if cargo.python else None,
    )


def _with_start(manifest: Manifest, contents: dict[str, Content], first: int) -> Packed:
    """Put `start.sh` before everything; it says how many bytes of the tar hold verl-env, which it is itself part of."""
    head, script = 0, b""
    for _ in range(2):
        script = _script(manifest.members[:first], head)
        start = Member(path=START, size=len(script), sha256=hashlib.sha256(script).hexdigest(), executable=True)
        whole = replace(manifest, members=(start, *manifest.members))
        listed = layout.render_manifest(whole)
        head = [it.end for it in layout.placed(listed, whole)][first + 1]
    return Packed(manifest=whole, contents=contents | {START: Content(data=script)})


def _script(members: tuple[Member, ...], head: int) -> bytes:
    """Fill in what `start.sh` knows of its bundle: how far to read, which folders, and every hash."""
    sums = "\n".join(f"{it.sha256}  {it.path}" for it in members)
    rooms = " ".join(sorted({it.path.split("/")[0] for it in members}))
    text = Path(__file__).with_name("start.sh").read_text(encoding="utf-8")
    text = text.replace("@HEAD@", f"{head:<{_HEAD_WIDTH}}").replace("@NAMES@", rooms).replace("@SUMS@", sums)
    return text.replace("@ID@", hashlib.sha256(sums.encode()).hexdigest()[:20]).encode()
