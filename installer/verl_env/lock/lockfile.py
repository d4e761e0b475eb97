"""The lockfile: a PEP 751 document with a `[tool.verl-env]` table, as a value, as text, and back. Pure.

Any PEP 751 installer can install it. What verl-env knows beyond that (row, driver floor, CUDA, glibc floor,
sizes, exports, smoke imports, the order of sources) is in the table.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from verl_env import toml
from verl_env.errors import LockError
from verl_env.matrix.pins import Pin
from verl_env.records import RecordError, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCK_VERSION = "1.0"  # of PEP 751
SCHEMA = 1  # of our table


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`[tool.verl-env]`: what an installer of ours needs beyond PEP 751.

    `driver` is the oldest NVIDIA driver that carries `cuda` without cuda-compat; both are absent on a CPU row.
    Sizes are in bytes. `sources` maps packages to their source where it is not `default`; `build` is what the
    sdists among the packages need to be built.
    """

    schema: int
    digest: str
    row: str
    title: str
    python: str
    arch: str
    imports: tuple[str, ...]
    cuda: str | None = None
    driver: str | None = None
    glibc: str | None = None
    download_bytes: int = 0
    installed_bytes: int = 0
    installed_files: int = 0
    set: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    attention: str | None = None
    settings: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    build: tuple[Pin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lockfile in memory: our table and one file a package. `urls` is by file name, and not part of the digest."""

    table: Table
    pins: tuple[Pin, ...]
    urls: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the environment this lock makes: its row and the start of its digest."""
        return f"{self.table.row}-{self.table.digest.removeprefix('sha256:')[:12]}"

    @property
    def file_name(self) -> str:
        """PEP 751: `pylock.<name>.toml`, and a name without a dot."""
        return f"pylock.{self.table.row}.toml"


def lock_digest(table: Table, pins: tuple[Pin, ...]) -> str:
    """Return `sha256:…` over packages (name, version, file, size, sha256) and the table; never over URLs."""
    packages = [[pin.name, pin.version, pin.file, pin.size, pin.sha256] for pin in sorted(pins, key=_order)]
    content = json.dumps([packages, to_plain(replace(table, digest=""))], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def sealed(lock: Lock) -> Lock:
    """Return the lock with its digest computed."""
    return replace(lock, table=replace(lock.table, digest=lock_digest(lock.table, lock.pins)))


def _order(pin: Pin) -> tuple[str, str]:
    return pin.name, pin.file


def render_lock(lock: Lock) -> str:
    """Write the document: same lock, same bytes. Every package must have a URL (PEP 751 requires one)."""
    import tomlkit
    from tomlkit.items import AoT

    table = lock.table
    document = tomlkit.document()
    document["lock-version"] = LOCK_VERSION
    document["environments"] = [
        f"sys_platform == 'linux' and platform_machine == '{table.arch}' and implementation_name == 'cpython'"
    ]
    document["requires-python"] = f"=={table.python}.*"
    document["created-by"] = "verl-env"
    packages = AoT([])
    for pin in sorted(lock.pins, key=_order):
        packages.append(_package(pin, lock.urls[pin.file]))
    document["packages"] = packages
    document["tool"] = {"verl-env": _table(table)}
    text: str = tomlkit.dumps(document)
    return text


def _package(pin: Pin, url: str) -> Any:
    """Return one `[[packages]]` table; its one file as an inline table."""
    import tomlkit

    file = tomlkit.inline_table()
    file.update({"url": url, "size": pin.size, "hashes": tomlkit.inline_table()})
    if url.rsplit("/", 1)[-1] != pin.file:
        file["name"] = pin.file
    file["hashes"]["sha256"] = pin.sha256
    package = tomlkit.table()
    package.update({"name": pin.name, "version": pin.version})
    if pin.is_sdist:
        package["sdist"] = file
    else:
        wheels = tomlkit.array()
        wheels.append(file)
        package["wheels"] = wheels
    return package


def _table(table: Table) -> Any:
    """Return our table as TOML: dashes in keys, absent where None."""
    import tomlkit

    plain = {_dashed(key): value for key, value in to_plain(table).items() if value not in (None, {}, [], ())}
    toml = tomlkit.table()
    for key, value in plain.items():
        if key == "build":
            array = tomlkit.array().multiline(multiline=True)
            for item in value:
                inline = tomlkit.inline_table()
                inline.update(item)
                array.append(inline)
            toml[key] = array
        else:
            toml[key] = tomlkit.array(json.dumps(value)).multiline(multiline=True) if isinstance(value, list) else value
    return toml


def _dashed(key: str) -> str:
    return key.replace("_", "-")


def parse_lock(text: str, where: str) -> Lock:
    """Read a lockfile that verl-env wrote; raise LockError with the key at fault."""
    try:
        plain = toml.loads(text)
    except toml.TOMLDecodeError as err:
        raise LockError(f"`{where}` is not a whole TOML file: {err}", hint="write it again: verl-env lock") from err
    _check_pep751(plain, where)
    ours = plain.get("tool", {}).get("verl-env")
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
    known: dict[str, str] = {_dashed(item.name): item.name for item in fields(Table)}
    try:
        table = from_plain(Table, {known.get(str(key), str(key)): value for key, value in ours.items()})
    except RecordError as err:
        raise LockError(
            f"`{where}` has a damaged [tool.verl-env] table",
            details=err.faults,
            hint="write it again: verl-env lock",
        ) from err
    lock = _with_packages(table, plain, where)
    found = lock_digest(lock.table, lock.pins)
    if found != table.digest:
        raise LockError(
            f"`{where}` was changed after it was written: its packages do not give its digest",
            details=(f"it says  {table.digest}", f"it gives {found}"),
            hint="write it again: verl-env lock",
        )
    return lock


def _check_pep751(plain: dict[str, Any], where: str) -> None:
    """Let packaging judge the document, as every PEP 751 installer would."""
    from packaging.pylock import Pylock, PylockValidationError

    try:
        Pylock.from_dict(plain)
    except PylockValidationError as err:
        raise LockError(f"`{where}` is not a PEP 751 lockfile: {err}", hint="write it again: verl-env lock") from err


def _with_packages(table: Table, plain: dict[str, Any], where: str) -> Lock:
    """Take the one file of each package."""
    pins, urls = [], {}
    for package in plain["packages"]:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        if len(files) != 1 or "sha256" not in files[0].get("hashes", {}) or "size" not in files[0]:
            raise LockError(
                f"`{where}`: package `{package['name']}` must have one file, with its size and sha256",
                hint="write it again: verl-env lock",
            )
        url = files[0].get("url", "")
        file = files[0].get("name") or url.rsplit("/", 1)[-1]
        pins.append(
            Pin(
                name=package["name"],
                version=package["version"],
                file=file,
                size=files[0]["size"],
                sha256=files[0]["hashes"]["sha256"],
                source=table.sources.get(package["name"], "default"),
            )
        )
        urls[file] = url
    return Lock(table=table, pins=tuple(pins), urls=urls)
