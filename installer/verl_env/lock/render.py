"""A lock as text: same lock, same bytes. Pure.

Written by hand because `lock --check` compares bytes on every commit: a TOML library took longer than everything else
together. Tests hold what is written against the standard library's reader and packaging's PEP 751 validation.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from verl_env.records import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.lock.lockfile import Lock
    from verl_env.lock.table import Table
    from verl_env.matrix.pins import Pin

LOCK_VERSION = "1.0"  # of PEP 751
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Free text of the table, where a key is somebody's and not ours: dashes are not exchanged for underscores.
_FREE = ("set", "exports", "sources", "moved")


def render_lock(lock: Lock) -> str:
    """Write the document. Every package must have a place in `lock.urls` (PEP 751 requires one)."""
    table = lock.table
    marker = f"sys_platform == 'linux' and platform_machine == '{table.arch}' and implementation_name == 'cpython'"
    lines = [
        f"lock-version = {quoted(LOCK_VERSION)}",
        f"environments = [{quoted(marker)}]",
        f"requires-python = {quoted(f'=={table.python}.*')}",
        'created-by = "verl-env"',
    ]
    if not lock.pins:
        lines.append("packages = []")
    for pin in sorted(lock.pins, key=lambda it: (it.name, it.file)):
        lines += ["", *_package(pin, lock.urls[pin.file])]
    lines += ["", *_ours(table)]
    return "\n".join(lines) + "\n"


def file_of(url: str) -> str:
    """Return the file name in a URL or path: its last segment, percent-decoded, without query and fragment."""
    return unquote(urlsplit(url).path.rsplit("/", 1)[-1])


def _package(pin: Pin, url: str) -> Iterator[str]:
    """Write one `[[packages]]` table with its one file; `name` where an installer would not read it off the URL."""
    # PEP 751: an installer that is given no name takes the last segment as it stands, percent-encoded or not.
    name = "" if url.rsplit("/", 1)[-1] == pin.file else f"name = {quoted(pin.file)}, "
    key = "url" if "://" in url else "path"
    place = f"{key} = {quoted(url)}, size = {pin.size}, hashes = {{sha256 = {quoted(pin.sha256)}}}"
    yield "[[packages]]"
    yield f"name = {quoted(pin.name)}"
    yield f"version = {quoted(pin.version)}"
    yield f"sdist = {{{name}{place}}}" if pin.is_sdist else f"wheels = [{{{name}{place}}}]"


def _ours(table: Table) -> Iterator[str]:
    """Write `[tool.verl-env]`, its plain values first, then each table in it."""
    plain = to_plain(table)
    yield "[tool.verl-env]"
    yield from _values(plain)
    for key in (key for key, value in plain.items() if isinstance(value, dict) and value):
        yield ""
        yield f"[tool.verl-env.{key}]"
        yield from _values(plain[key], dashes=key not in _FREE)


def _values(plain: dict[str, Any], *, dashes: bool = True) -> Iterator[str]:
    """Write the scalars and lists of a table, one a line; what is absent or empty is left out."""
    for key, value in plain.items():
        # `dependencies = []` is said: it declares nothing, which is another thing than not being known.
        if isinstance(value, dict) or value in (None, False) or (value == [] and key != "dependencies"):
            continue
        name = key.replace("_", "-") if dashes else key
        yield f"{name if _BARE_KEY.fullmatch(name) else quoted(name)} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[\n" + "".join(f"    {_inline(it)},\n" for it in value) + "]" if value else "[]"
    return _inline(value)


def _inline(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key.replace('_', '-')} = {_inline(it)}" for key, it in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(it) for it in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else quoted(value)


def quoted(text: str) -> str:
    """Write a TOML basic string: JSON's, and DEL escaped, which TOML does not allow bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
