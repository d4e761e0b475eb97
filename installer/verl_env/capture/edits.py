"""Edited files of an environment become a patch, held against the wheels they came from. An edge."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env import fetch
from verl_env.environment.unified_diff import make_diff
from verl_env.errors import LockError, VerlEnvError
from verl_env.lock.captured import PatchedFile
from verl_env.matrix.clashes import installed_path, parse_record
from verl_env.matrix.wheel_records import read_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from verl_env.capture.distributions import Installed
    from verl_env.capture.environment import Environment
    from verl_env.capture.on_index import Held
    from verl_env.indexes import Indexes

_MOST_BYTES = 4_000_000  # a source file that people edit is far smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch as text, and the files it changes."""

    text: str
    files: tuple[PatchedFile, ...]


def make_patch(environment: Environment, held: Sequence[Held], indexes: Indexes) -> Patch | None:
    """Return the edits as a patch; raises LockError for an edit that is no text or whose original is out of reach."""
    states = environment.condition.files if environment.condition else ()
    edits = [it for it in states if it.state in ("edited", "missing")]
    if not edits:
        return None
    door = fetch.open_door(indexes)
    by_name = {it.pin.name: it for it in held}
    installed = {it.name: it for it in environment.installed}
    pieces, files, refused = [], [], []
    for edit in edits:
        held_package = by_name.get(edit.package)
        if held_package is None or held_package.pin.is_sdist or edit.path.startswith("../"):
            refused.append(f"{edit.package}: {edit.path}: its original is in no wheel")
            continue
        before = _original(door, held_package, edit.path)
        after = _now(installed[edit.package], edit.path)
        if before is None or after is None:
            refused.append(f"{edit.package}: {edit.path}: not text, so no patch can hold it")
            continue
        pieces.append(make_diff(edit.path, before, after))
        digest = hashlib.sha256(after.encode()).hexdigest()
        files.append(PatchedFile(path=edit.path, package=edit.package, sha256=digest))
    if refused:
        raise LockError(
            f"{len(refused)} edits cannot be stored as a patch",
            details=tuple(refused),
            hint="install those packages again, or build wheels of your own and set UV_FIND_LINKS to their folder",
        )
    return Patch(text="".join(pieces), files=tuple(files))


def _original(door: fetch.Door, held: Held, path: str) -> str | None:
    """Read one file out of the wheel on its index; None when it is no text."""
    try:
        with door.open(held.url, held.pin.size) as stream, zipfile.ZipFile(stream) as wheel:
            member = next((it for it in wheel.namelist() if installed_path(it) == path), None)
            content = wheel.read(member) if member else None
    except (zipfile.BadZipFile, OSError) as err:
        raise LockError(
            f"the wheel of {held.pin.name} cannot be read: {err}", hint="see that the index is in reach"
        ) from err
    return None if content is None else _text(content)


def _now(installed: Installed, path: str) -> str | None:
    """Read a file as it is; "" when it is gone."""
    try:
        return _text((installed.base / path).read_bytes())
    except FileNotFoundError:
        return ""


def _text(content: bytes) -> str | None:
    if len(content) > _MOST_BYTES or b"\x00" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def compare_records(
    environment: Environment, held: Sequence[Held], indexes: Indexes
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Hold each wheel's RECORD on the index against the installed one.

    Return how sure each package is that its file was found (`record` where they agree), and why the others are not.
    """
    from concurrent.futures import ThreadPoolExecutor

    door = fetch.open_door(indexes)
    installed = {it.name: it for it in environment.installed}
    patched = frozenset(it.path for it in environment.patched)

    def judge(item: Held) -> tuple[str, str, str]:
        if item.pin.is_sdist or item.sure == "hash":
            return item.pin.name, item.sure, ""
        try:
            theirs = parse_record(read_record(door, item.url, item.pin.size))
        except (VerlEnvError, zipfile.BadZipFile, OSError, UnicodeDecodeError) as err:
            return item.pin.name, item.sure, f"its RECORD on the index cannot be read: {err}"
        return _judged(item, installed[item.pin.name], theirs, patched)

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(judge, held))
    return {name: sure for name, sure, _ in found}, {name: why for name, _, why in found if why}


def _judged(item: Held, here: Installed, theirs: Mapping[str, str], patched: frozenset[str]) -> tuple[str, str, str]:
    ours = {here.relative(it.path): it.sha256 for it in here.files or () if it.sha256}
    wheel = {path: _hex(value) for path, value in theirs.items()}
    shared = [path for path in wheel if path in ours and wheel[path] and ".dist-info/" not in path]
    apart = [path for path in shared if wheel[path] != ours[path] and path not in patched]
    if shared and not apart:
        return item.pin.name, "record", ""
    if apart:
        return item.pin.name, "version", f"{len(apart)} of its files are others in the wheel on the index ({apart[0]})"
    return item.pin.name, item.sure, ""


def _hex(value: str) -> str:
    """Return a RECORD's hash in hex, however it is written."""
    import base64

    text = value.removeprefix("sha256=")
    if len(text) == 64:  # noqa: PLR2004 - hex already
        return text
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
    except ValueError:
        return ""
