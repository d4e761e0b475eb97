"""Unified diffs of text, made and applied exactly: no fuzz, no offsets. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@.*\n?")
_NO_NEWLINE = "\\ No newline at end of file\n"


class DiffError(ValueError):
    """A diff that cannot be read or does not fit; the message says where."""


def make_diff(path: str, before: str, after: str) -> str:
    """Return the unified diff of one file, as `patch -p1` and git read it too."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """Split at newlines only: a form feed or a carriage return is part of its line."""
    parts = text.split("\n")
    return [f"{it}\n" for it in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def split_patch(text: str) -> dict[str, str]:
    """Return the diff of each file in a patch, by its path; raises DiffError."""
    pieces: dict[str, str] = {}
    path: str | None = None
    body: list[str] = []
    for line in _lines(text):
        if line.startswith("--- a/") and not _within_hunk(body):
            if path is not None:
                pieces[path] = "".join(body)
            path, body = line[6:].rstrip("\n"), []
        elif line.startswith("+++ b/") and not body:
            continue
        elif path is not None:
            body.append(line)
    if path is not None:
        pieces[path] = "".join(body)
    if not pieces:
        raise DiffError("it holds no unified diff")
    return pieces


def _within_hunk(body: list[str]) -> bool:
    """Whether the last hunk still wants lines: a removed line `-- a/…` looks like a header."""
    left = 0
    for line in body:
        if found := _HUNK.fullmatch(line):
            left = int(found[2] if found[2] is not None else 1)
        elif line[:1] in (" ", "-"):
            left -= 1
    return left > 0


def apply_diff(before: str, diff: str) -> str:
    """Return the text after one file's diff; raises DiffError where it does not fit exactly."""
    source = _lines(before)
    result: list[str] = []
    at = 0
    for start, lines in _hunks(diff):
        if start < at or start > len(source):
            raise DiffError(f"a change at line {start + 1} is out of place")
        result += source[at:start]
        at = start
        for line in lines:
            kind, content = line[0], line[1:]
            if kind in " -":
                if at >= len(source) or source[at] != content:
                    raise DiffError(f"line {at + 1} is not what it was captured against")
                at += 1
            if kind in " +":
                result.append(content)
    return "".join([*result, *source[at:]])


def _hunks(diff: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each hunk: the index of its first line in the old file, and its lines."""
    hunk: tuple[int, list[str]] | None = None
    for line in _lines(diff):
        if found := _HUNK.fullmatch(line):
            if hunk:
                yield hunk
            first = int(found[1])
            # A hunk without old lines names the line that it comes after.
            hunk = (first if found[2] == "0" else first - 1, [])
        elif hunk is not None and line == _NO_NEWLINE and hunk[1]:
            hunk[1][-1] = hunk[1][-1].removesuffix("\n")
        elif hunk is not None and line[:1] in (" ", "-", "+"):
            hunk[1].append(line)
        elif line.strip():
            raise DiffError(f"`{line.rstrip()[:60]}` is no line of a unified diff")
    if hunk:
        yield hunk
