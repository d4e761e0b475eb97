"""A lockfile held against what would be written: each difference, in words. Pure.

URLs are not compared: they are whatever index the lock was written with. They are held against their files' names.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from verl_env.lock.lockfile import lock_digest
from verl_env.lock.render import file_of, render_lock
from verl_env.records import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.pins import Pin

_OURS = (
    "asked",
    "editable",
    "captured",
)  # tables whose keys are ours, written with dashes; the others' keys are somebody's
_ARTIFACT = re.compile(r"\.(whl|tar\.gz|zip)$")


KINDS = (
    "row", "python", "table", "added", "removed", "version", "file", "hash", "url", "wish", "rule", "checkout",
    "digest", "patch", "text",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which a lockfile is not what would be written.

    `kind` is one of KINDS, `what` names the package or key, `text` says it for people, and `line` is where in the
    file (from 1), if anywhere.
    """

    kind: str
    what: str
    text: str
    line: int | None = None


def compare_locks(found: Lock, expected: Lock, text: str) -> tuple[Difference, ...]:
    """Return how `found`, whose text is `text`, differs from `expected`; the text itself is compared last."""
    lines = _Lines(text)
    differences = [*_packages(found, expected, lines), *_tables(found, expected, lines), *_urls(found, lines)]
    if not differences and lock_digest(found.table, found.pins) != found.table.digest:
        line = lines.of_key("digest")
        differences.append(Difference(kind="digest", what="digest", text="the digest is not its packages'", line=line))
    return tuple(differences or _texts(found, expected, text))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Finds the line of a package or key in a lockfile's text."""

    text: str

    def of_package(self, name: str) -> int | None:
        return self._find(rf'^name = "{re.escape(name)}"$')

    def of_key(self, key: str) -> int | None:
        return self._find(rf"^(\[tool\.verl-env\.)?{re.escape(key)}(\]| = )")

    def _find(self, pattern: str) -> int | None:
        found = re.search(pattern, self.text, re.MULTILINE)
        return self.text.count("\n", 0, found.start()) + 1 if found else None


def _packages(found: Lock, expected: Lock, lines: _Lines) -> Iterator[Difference]:
    """Compare packages by name; a version that differs is not also a file and a hash that differ."""
    has = {pin.name: pin for pin in found.pins}
    wants = {pin.name: pin for pin in expected.pins}
    for name in sorted(has.keys() | wants.keys()):
        if has.get(name) == wants.get(name):
            continue
        line = lines.of_package(name)
        if name not in has:
            said = f"{name} {wants[name].version} is missing from the file"
            yield Difference(kind="removed", what=name, text=said)
        elif name not in wants:
            said = f"{name} {has[name].version} is in the file, and nothing asks for it"
            yield Difference(kind="added", what=name, text=said, line=line)
        else:
            kind, said = _changed(has[name], wants[name])
            yield Difference(kind=kind, what=name, text=f"{name} {said}", line=line)


def _changed(has: Pin, wants: Pin) -> tuple[str, str]:
    """Say what differs between two pins of a package, the largest first."""
    if has.version != wants.version:
        return "version", f"is {has.version} in the file, and should be {wants.version}"
    if has.file != wants.file:
        return "file", f"{has.version} is the file {has.file}, and should be {wants.file}"
    if has.sha256 != wants.sha256:
        return "hash", f"{has.version} has sha256 {has.sha256}, and should have {wants.sha256}"
    if has.size != wants.size:
        return "file", f"{has.version} has {has.size} bytes, and should have {wants.size}"
    return "file", f"{has.version} comes from `{has.source}`, and should from `{wants.source}`"


def _tables(found: Lock, expected: Lock, lines: _Lines) -> Iterator[Difference]:
    """Compare [tool.verl-env] key by key, and tables in it entry by entry."""
    has, wants = to_plain(found.table), to_plain(expected.table)
    for key in (key for key in wants if key != "digest" and has[key] != wants[key]):
        kind = key if key in ("row", "python") else "table"
        name = key.replace("_", "-")
        for what, one, two in _entries(name, has[key], wants[key]):
            said = f"{what}: {_shown(one)} in the file, and should be {_shown(two)}"
            yield Difference(kind=kind, what=what, text=said, line=lines.of_key(name))


def _entries(name: str, has: Any, wants: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, what is there, what should be) for each entry that differs."""
    if isinstance(has, list) and isinstance(wants, list):
        gone, new = [it for it in has if it not in wants], [it for it in wants if it not in has]
        yield (name, gone, new) if gone or new else (name, has, wants)
        return
    if not (isinstance(has, dict) and isinstance(wants, dict)):
        yield name, has, wants
        return
    for key in sorted(has.keys() | wants.keys()):
        if has.get(key) != wants.get(key):
            yield from _entries(
                f"{name}.{key.replace('_', '-') if name in _OURS else key}", has.get(key), wants.get(key)
            )


def _shown(value: Any) -> str:
    """Show a value on one line, cut where it is long."""
    text = "absent" if value in (None, [], {}) else f"`{value}`"
    return text if len(text) < 200 else f"{text[:199]}…"  # noqa: PLR2004 - two lines of a terminal


def _urls(found: Lock, lines: _Lines) -> Iterator[Difference]:
    """Hold each place against its file: a URL that a PEP 751 installer can use, with no login in it."""
    for pin in found.pins:
        if fault := url_fault(found.urls.get(pin.file, ""), pin.file):
            line = lines.of_package(pin.name)
            yield Difference(kind="url", what=pin.name, text=f"{pin.name} {pin.version}: {fault}", line=line)


def url_fault(url: str, file: str) -> str | None:
    """Return what is wrong with the place of a file, or None. The URL itself is not repeated: it may hold a secret."""
    if not url:
        return "it has no URL"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its URL cannot be parsed"
    if "://" in url:
        if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not parts.hostname):
            return "its URL is not one of http, https or file with a host"
        if "@" in parts.netloc:
            return "its URL has a user name or password in it: change them, they are in the file's history"
    name = file_of(url)
    # PEP 751 lets a server name a file as it likes when `name` says the real one; another artifact's name is not that.
    if name != file and (_ARTIFACT.search(name) or not name):
        return f"its URL is of `{name}`, and the file is `{file}`"
    return None


def _texts(found: Lock, expected: Lock, text: str) -> Iterator[Difference]:
    """Compare the bytes: keys that other installers read and we do not (markers, dependencies), comments, order."""
    wanted = render_lock(replace(expected, urls=found.urls))
    if text == wanted:
        return
    for line in difflib.unified_diff(wanted.splitlines(), text.splitlines(), lineterm="", n=0):
        if place := re.match(r"@@ .*\+(\d+)", line):
            number = int(place[1])
        elif line[0] in "+-" and not line.startswith(("+++", "---")):
            what = "is not of verl-env's writing" if line[0] == "+" else "is missing"
            yield Difference(
                kind="text", what="text", text=f"line {number} {what}: {line[1:].strip()[:120]}", line=number
            )
            return
    yield Difference(kind="text", what="text", text="line ends or the end of the file are not of verl-env's writing")
