"""The files that a build starts from, brought into one folder, each compared with its hash. An edge.

Folders of files (`--find-links`) are looked into before any index is asked, so that a node with no network needs no
answer from one.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from verl_env import fetch, output
from verl_env.errors import ResolveError
from verl_env.files import writing_atomically
from verl_env.lock.locate import locate

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin

_BLOCK = 1 << 20


class WrongFileError(ResolveError):
    """A file that has the name of a pinned one, and other contents."""

    code = "wrong-file"


def gather(pins: tuple[Pin, ...], folder: Path, python: str, indexes: Indexes, facts: Facts) -> None:
    """Bring every file into `folder`: from there, from folders of files, then from indexes."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = tuple(pin for pin in pins if not _is_here(pin, folder) and not _copied(pin, folder, indexes))
    if not missing:
        return
    output.note(f"fetching {', '.join(pin.file for pin in missing)}")
    urls = locate(missing, python, indexes, facts).urls
    door = fetch.open_door(indexes)
    for pin in missing:
        _fetch(pin, urls[pin.file], folder, door)


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _is_here(pin: Pin, folder: Path) -> bool:
    path = folder / pin.file
    return path.is_file() and sha256_of(path) == pin.sha256


def _copied(pin: Pin, folder: Path, indexes: Indexes) -> bool:
    """Copy a file from the first folder that has it under this name; raises WrongFileError when it is another."""
    for place in indexes.find_links:
        path = Path(unquote(urlsplit(place).path) if place.startswith("file:") else place).expanduser() / pin.file
        if not path.is_file():
            continue
        found = sha256_of(path)
        if found != pin.sha256:
            raise _wrong(pin, str(path), found)
        with path.open("rb") as source, writing_atomically(folder / pin.file) as stream:
            shutil.copyfileobj(source, stream, _BLOCK)
        return True
    return False


def _fetch(pin: Pin, url: str, folder: Path, door: fetch.Door) -> None:
    """Fetch one file; what is another file leaves nothing behind."""
    digest = hashlib.sha256()
    with writing_atomically(folder / pin.file) as stream:
        blocks = door.stream(url if "://" in url else Path(url).absolute().as_uri())
        for block in blocks:
            digest.update(block)
            stream.write(block)
        if digest.hexdigest() != pin.sha256:
            raise _wrong(pin, url, digest.hexdigest())


def _wrong(pin: Pin, place: str, found: str) -> WrongFileError:
    return WrongFileError(
        f"`{pin.file}` is another file than the one that is pinned",
        details=(f"at {place}", f"pinned sha256 {pin.sha256}", f"found  sha256 {found}"),
        hint="do not use that file; bring the pinned one, or name another index: --index URL",
    )
