"""Reading requirements files: the part of pip's format that can go into a lock, the rest refused by name.

Understood: comments, continued lines, PEP 508 requirements with extras and markers, `--hash=sha256:…`, `-r FILE` and
`-c FILE` (relative to the file that names them). Refused, because a lock names no place: index options, URLs, paths
and `-e`; because they would change what is resolved unseen: pip's other options and `${VARIABLES}`.
PEP 508 itself is packaging's to parse. (pip-requirements-parser, which reads all of pip's format, has had no release
since 2022; requirements-parser skips index options and hashes without a word.)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.errors import UsageError
from verl_env.files import read_bounded
from verl_env.lock.wishes import Wish, parse_wish
from verl_env.urls import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_BYTES = 4_000_000
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
_INCLUDE = re.compile(r"(?P<short>-r|-c)\s*(?P<a>\S.*)|(?P<long>--requirement|--constraint)[=\s]\s*(?P<b>\S.*)")
_INDEX = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--trusted-host")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def read_requirements(path: Path) -> tuple[Wish, ...]:
    """Read a file and all it includes; raises UsageError with the file and line at fault."""
    return parse_requirements(str(path), _text)


def parse_requirements(name: str, read: Callable[[str], str]) -> tuple[Wish, ...]:
    """Parse what `read` returns for `name`, and for each file it includes."""
    return tuple(dict.fromkeys(_parse(name, read, (), constraint=False)))


def _parse(name: str, read: Callable[[str], str], trail: tuple[str, ...], *, constraint: bool) -> Iterator[Wish]:
    """Yield the wishes of one file; `trail` are the files that led here."""
    place = _plain(name)
    if place in trail:
        chain = " -> ".join((*trail[trail.index(place) :], place))
        raise UsageError(f"requirements files include each other: {chain}", hint="take one of these lines out")
    for number, line in logical_lines(read(name)):
        origin = f"{name}:{number}"
        if found := _INCLUDE.fullmatch(line):
            kind = found["short"] or found["long"]
            nested = str(Path(name).parent / (found["a"] or found["b"]))
            yield from _parse(nested, read, (*trail, place), constraint=constraint or kind in ("-c", "--constraint"))
        else:
            yield _wish(line, origin, constraint=constraint)


def _plain(name: str) -> str:
    """Return a path without `.` and `..`, so that a file is known again however it is named."""
    import os

    return os.path.normpath(name)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, continued lines joined and comments gone (as pip reads them)."""
    joined, start = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        start = start or number
        comment = raw.lstrip().startswith("#")
        if raw.endswith("\\") and not comment:
            joined += raw[:-1]
            continue
        line = _COMMENT.sub("", joined + ("" if comment and joined else raw)).strip()
        if line:
            yield start, line
        joined, start = "", 0


def _wish(line: str, origin: str, *, constraint: bool) -> Wish:
    """Read one requirement and its hashes, or say what cannot go into a lock."""
    option = re.split(r"[=\s]", line, maxsplit=1)[0]
    if option in _INDEX or line.startswith(("-i", "-f")):
        raise UsageError(
            f"{origin}: `{option}` names an index, and a lock names none",
            hint="take the line out, and give the index with --index URL or in uv's or pip's settings",
        )
    if option == "--editable" or line.startswith("-e"):
        raise UsageError(
            f"{origin}: an editable package cannot be a pin", hint="for a checkout of verl: --editable PATH"
        )
    if line.startswith("-"):
        raise UsageError(f"{origin}: `{option}` is an option of pip's that a lock cannot hold", hint="take it out")
    if found := _VARIABLE.search(line):
        raise UsageError(f"{origin}: `{found[0]}` differs from machine to machine", hint="write out what it stands for")
    hashes = tuple(_HASH.findall(line))
    if odd := [it for it in hashes if not _SHA256.fullmatch(it)]:
        raise UsageError(
            f"{origin}: `--hash={shown(odd[0])}` is not a sha256", hint="hash files with sha256, 64 hex digits"
        )
    text = _HASH.sub("", line).strip()
    if re.match(r"[./~]|[a-z+]+://|\w+\.whl$", text) or (
        text.endswith((".whl", ".tar.gz", ".zip")) and "@" not in text
    ):
        raise UsageError(
            f"{origin}: `{shown(text)}` is a file or URL, and a lock holds files that any index can serve",
            hint="name the package and its version; for a folder of wheels set UV_FIND_LINKS",
        )
    return parse_wish(text, origin, hashes=hashes, constraint=constraint)


def _text(name: str) -> str:
    """Read a file's text; raises UsageError for what is none."""
    try:
        return read_bounded(Path(name), _MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise UsageError(f"`{name}` is not UTF-8 text: {err.reason}", hint="save it as UTF-8") from err
    except (OSError, ValueError) as err:
        what = err.strerror if isinstance(err, OSError) else str(err)
        raise UsageError(f"`{name}` cannot be read: {what}", hint="name another file") from err
