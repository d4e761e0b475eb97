"""The lockfile: a PEP 751 document with a `[tool.verl-env]` table, as a value, and read from text. Pure.

Any PEP 751 installer can install it. What verl-env knows beyond that (row, driver floor, CUDA, glibc floor,
sizes, exports, smoke imports, the order of sources) is in the table.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from verl_env import toml
from verl_env.errors import LockError
from verl_env.lock.captured import Captured
from verl_env.lock.render import file_of, render_lock
from verl_env.lock.table import SCHEMA, Asked, AskedFile, Editable, Table
from verl_env.matrix.pins import Pin
from verl_env.records import RecordError, from_plain, to_plain

__all__ = ["SCHEMA", "Lock", "Table", "lock_digest", "parse_lock", "parse_unjudged", "render_lock", "sealed"]

_AGAIN = "write it again: verl-env lock"
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lockfile in memory: our table and one file a package.

    `urls` is by file name, and not part of the digest; a value without a scheme is a path relative to the lockfile.
    `origin` is the file the lock was read from, or ""; it says what an editable's path is relative to.
    """

    table: Table
    pins: tuple[Pin, ...]
    urls: Mapping[str, str] = field(default_factory=dict)
    origin: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The name of the environment this lock makes: its row and the start of its digest.

        Two checkouts of one commit are two environments: an editable's own folder is part of the name.
        """
        name = f"{self.table.row}-{self.table.digest.removeprefix('sha256:')[:12]}"
        if self.table.editable is None:
            return name
        return f"{name}-{hashlib.sha256(self.editable_folder.encode()).hexdigest()[:6]}"

    @property
    def editable_folder(self) -> str:
        """The absolute folder of the checkout that is installed over the pins; "" when there is none."""
        if self.table.editable is None:
            return ""
        return os.path.realpath(os.path.join(os.path.dirname(self.origin), self.table.editable.path))

    @property
    def file_name(self) -> str:
        """PEP 751: `pylock.<name>.toml`, and a name without a dot."""
        return f"pylock.{self.table.row}.toml"


def lock_digest(table: Table, pins: tuple[Pin, ...]) -> str:
    """Return `sha256:…` over packages (name, version, file, size, sha256) and the table; never over URLs."""
    packages = [[pin.name, pin.version, pin.file, pin.size, pin.sha256] for pin in sorted(pins, key=_order)]
    content = json.dumps([packages, _said(to_plain(table))], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def _said(plain: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is absent, so that a new kind of entry does not change the digest of locks without one."""
    said = {key: _said(value) if isinstance(value, dict) else value for key, value in plain.items() if key != "digest"}
    return {key: value for key, value in said.items() if value not in (None, False, {}, [])}


def sealed(lock: Lock) -> Lock:
    """Return the lock with its digest computed."""
    return replace(lock, table=replace(lock.table, digest=lock_digest(lock.table, lock.pins)))


def _order(pin: Pin) -> tuple[str, str]:
    return pin.name, pin.file


def parse_lock(text: str, where: str, *, tampered: bool = False) -> Lock:
    """Read a lockfile that verl-env wrote; raise LockError with the key at fault.

    With `tampered`, one whose packages do not give its digest is returned all the same: `lock --check` says how.
    """
    plain = _document(text, where)
    lock = replace(_with_packages(_table(plain, where), plain, where), origin=where)
    found = lock_digest(lock.table, lock.pins)
    if found != lock.table.digest and not tampered:
        raise LockError(
            f"`{where}` was changed after it was written: its packages do not give its digest",
            details=(f"it says  {lock.table.digest}", f"it gives {found}"),
            hint=_AGAIN,
        )
    return lock


def parse_unjudged(text: str, where: str) -> Lock | None:
    """Read a lockfile without holding it against PEP 751; None when it is not plainly what verl-env writes.

    Only for a caller that compares every byte with what would be written.
    """
    try:
        plain = toml.loads(text)
        return replace(_with_packages(_table(plain, where), plain, where), origin=where)
    except (ValueError, LockError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _document(text: str, where: str) -> dict[str, Any]:
    """Parse the text, and let packaging judge the document as every PEP 751 installer would."""
    try:
        plain = toml.loads(text)
    except toml.TOMLDecodeError as err:
        raise LockError(f"`{where}` is not a whole TOML file: {err}", hint=_AGAIN) from err
    except RecursionError as err:
        raise LockError(f"`{where}` is nested too deeply for a lockfile", hint=_AGAIN) from err
    from packaging.pylock import Pylock, PylockValidationError

    try:
        Pylock.from_dict(plain)
    except (PylockValidationError, ValueError) as err:
        raise LockError(f"`{where}` is not a PEP 751 lockfile: {err}", hint=_AGAIN) from err
    return plain


def _table(plain: dict[str, Any], where: str) -> Table:
    """Read our table strictly."""
    tool = plain.get("tool")
    ours = tool.get("verl-env") if isinstance(tool, dict) else None
    if not isinstance(ours, dict):
        raise LockError(
            f"`{where}` is a lockfile of another tool: it has no [tool.verl-env] table",
            hint="install it with `uv pip sync`, or write one with `verl-env lock`",
        )
    if ours.get("schema") != SCHEMA:
        raise LockError(
            f"`{where}` has schema {ours.get('schema')!r}; this verl-env reads {SCHEMA}",
            hint="install the verl-env that wrote it, or write it again",
        )
    laid = _undashed(ours, Table)
    for key, kind in (("asked", Asked), ("editable", Editable), ("captured", Captured)):
        if isinstance(laid.get(key), dict):
            laid[key] = _undashed(laid[key], kind)
    try:
        return from_plain(Table, laid)
    except (RecordError, RecursionError) as err:
        faults = err.faults if isinstance(err, RecordError) else ()
        raise LockError(f"`{where}` has a damaged [tool.verl-env] table", details=faults, hint=_AGAIN) from err


def _undashed(plain: dict[str, Any], kind: type[Table | Asked | Editable | AskedFile | Captured]) -> dict[str, Any]:
    """Name keys as the record does; one that is written with an underscore stays unknown."""
    known = {item.name.replace("_", "-"): item.name for item in fields(kind)}
    return {known.get(key, f"[{key}]" if "_" in key else key): value for key, value in plain.items()}


def _with_packages(table: Table, plain: dict[str, Any], where: str) -> Lock:
    """Take the one file of each package."""
    pins: dict[str, Pin] = {}
    urls: dict[str, str] = {}
    for package in plain["packages"]:
        name = package["name"]
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        if len(files) != 1 or "version" not in package or not _whole(files[0]):
            raise LockError(
                f"`{where}`: package `{name}` must have a version and one file, with its size and sha256", hint=_AGAIN
            )
        place = files[0].get("url") or files[0].get("path") or ""
        file = files[0].get("name") or file_of(place)
        if not file or name in pins or file in urls:
            raise LockError(f"`{where}`: package `{name}` is there twice, or its file has no name", hint=_AGAIN)
        pins[name] = Pin(
            name=name,
            version=package["version"],
            file=file,
            size=files[0]["size"],
            sha256=files[0]["hashes"]["sha256"],
            source=table.sources.get(name, "default"),
        )
        urls[file] = place
    return Lock(table=table, pins=tuple(pins.values()), urls=urls)


def _whole(file: dict[str, Any]) -> bool:
    """Whether a file states its size and a sha256 that can be one."""
    digest = file.get("hashes", {}).get("sha256", "")
    return "size" in file and isinstance(digest, str) and len(digest) == 64 and set(digest) <= _HEX  # noqa: PLR2004
