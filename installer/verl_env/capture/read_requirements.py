"""Reading what pip writes and reads: `pip freeze`, requirements with hashes or wishes, `pip list`. Pure.

PEP 508 is packaging's to parse. Unlike the reader that feeds the resolver, this one takes what others have: index
options, URLs, editable lines and options of pip are understood or passed over, never an error.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from verl_env.capture.listing import Listed, Listing, Vcs, clean_name, clean_version, merged
from verl_env.errors import UsageError
from verl_env.lock.requirements_file import logical_lines
from verl_env.urls import bare_url, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARTIFACT = re.compile(r"\S+\.(whl|zip|tar\.(gz|bz2|xz))")
_HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
_OPTION = re.compile(r"\s--?[A-Za-z][\w-]*([=\s]\s*\S+)?")  # --global-option, --config-settings
_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:=|\s)\s*(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:=|\s)\s*(\S.*)")
_TABLE_ROW = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s+(?P<version>[0-9][\w.!+-]*)(?:\s+(?P<rest>\S.*))?")


def read_requirements_text(text: str, name: str, read: Callable[[str], str] | None = None) -> Listing:
    """Read a freeze or a requirements file; `read` gives the text of a file that this one includes, beside it."""
    unread: list[str] = []
    packages = tuple(merged(_lines(text, name, read, (name,), unread)))
    pinned = [it for it in packages if it.version]
    hashed = any(it.hashes for it in packages)
    if hashed:
        kind = "hashed requirements"
    elif packages and len(pinned) == len(packages):
        kind = "pip freeze"
    else:
        kind = "requirements"
    if hashed:
        packages = tuple(_with_hashed(it) for it in packages)
    return Listing(kind=kind, packages=packages, complete=kind != "requirements", unread=tuple(unread))


def _with_hashed(package: Listed) -> Listed:
    """In a file where some lines have hashes, one without is a gap; a commit is a hash of its own."""
    from dataclasses import replace

    return package if package.vcs and package.vcs.commit else replace(package, hashed=bool(package.hashes))


def _lines(
    text: str, name: str, read: Callable[[str], str] | None, trail: tuple[str, ...], unread: list[str]
) -> Iterator[Listed]:
    """Yield what each line names; `trail` are the files that led here."""
    for _, line in logical_lines(text):
        if found := _INCLUDE.fullmatch(line):
            nested = found[1].strip()
            if nested in trail or len(trail) > 20:  # noqa: PLR2004 - nobody nests deeper
                chain = " -> ".join((*trail, nested))
                raise UsageError(f"requirements files include each other: {chain}", hint="take one of the lines out")
            if read is None:
                unread.append(shown(line))
            else:
                yield from _lines(read(nested), name, read, (*trail, nested), unread)
        elif found := _EDITABLE.fullmatch(line):
            yield from _reference(found[1].strip(), unread, editable=True)
        elif not line.startswith("-"):
            yield from parse_line(line, unread)


def parse_line(line: str, unread: list[str]) -> Iterator[Listed]:
    """Yield the package that one requirement names; what is none goes to `unread`, without credentials."""
    hashes = tuple(_HASH.findall(f" {line}"))
    words = _OPTION.sub("", _HASH.sub("", f" {line}")).strip()
    try:
        # PEP 508 takes `x-1-py3-none-any.whl` for a name; pip takes it for the file that it is.
        wish = None if _ARTIFACT.fullmatch(words) else Requirement(words)
    except InvalidRequirement:
        wish = None
    if wish is None:
        yield from _reference(words, unread, editable=False, hashes=hashes)
        return
    if wish.url:
        yield from _reference(f"{wish.url}#egg={wish.name}", unread, editable=False, hashes=hashes)
        return
    exact = [it.version for it in wish.specifier if it.operator in ("==", "===") and not it.version.endswith(".*")]
    version = clean_version(exact[0]) if len(exact) == 1 and len(wish.specifier) == 1 else None
    spec = "" if version else str(wish.specifier)
    yield Listed(name=str(canonicalize_name(wish.name)), version=version, spec=spec, hashes=hashes)


def _reference(text: str, unread: list[str], *, editable: bool, hashes: tuple[str, ...] = ()) -> Iterator[Listed]:
    """Yield a package named by a URL, a repository or a file."""
    plain, _, fragment = text.partition("#")
    said = dict(part.split("=", 1) for part in fragment.split("&") if "=" in part)
    egg = clean_name(re.sub(r"\[.*", "", said.get("egg", "")))
    if vcs := _vcs(plain, said.get("subdirectory")):
        guess = clean_name(vcs.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git"))
        if name := egg or guess:
            yield Listed(name=name, vcs=vcs, url=vcs.url, editable=editable)
            return
    place = bare_url(plain) if "://" in plain and not plain.startswith("file:") else None
    file = _file_of(plain)
    if found := of_file(file):
        digest = (f"sha256:{said['sha256']}",) if "sha256" in said else ()
        yield Listed(
            name=found[0], version=found[1], files=(file,), hashes=hashes or digest, url=place, editable=editable
        )
    elif egg:
        yield Listed(name=egg, url=place, editable=editable)
    else:
        unread.append(shown(text))


def _file_of(place: str) -> str:
    """Return the file name at the end of a URL or path; "" for what is none."""
    try:
        return unquote(urlsplit(place).path.rsplit("/", 1)[-1])
    except ValueError:
        return ""


def of_file(file: str) -> tuple[str, str] | None:
    """Return the name and version that a wheel's or an sdist's file name says."""
    try:
        if file.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(file)
        else:
            name, version = parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return str(name), str(version)


def _vcs(text: str, subdirectory: str | None) -> Vcs | None:
    """Read `git+https://host/path@commit`; a branch or tag is no commit."""
    kind, plus, rest = text.partition("+")
    if not plus or kind not in ("git", "hg", "svn", "bzr") or "://" not in rest:
        return None
    head, at, ref = rest.rpartition("@")
    if not at or "/" not in head.split("://", 1)[1] or "://" in ref:
        head, ref = rest, ""
    commit = ref if re.fullmatch(r"[0-9a-f]{40}", ref) else None
    return Vcs(kind=kind, url=bare_url(head), commit=commit, subdirectory=subdirectory)


def read_pip_list(text: str, name: str) -> Listing:
    """Read `pip list`: columns, the older `name (version)`, or JSON; also `uv pip list`."""
    if text.lstrip().startswith("["):
        return _pip_list_json(text, name)
    packages: list[Listed] = []
    unread: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("Package ", "---", "#")):
            continue
        row = _TABLE_ROW.fullmatch(re.sub(r"\((\S+)\)", r"\1", line))
        if row and (version := clean_version(row["version"])):
            editable = bool(row["rest"] and "/" in row["rest"])
            packages.append(Listed(name=str(canonicalize_name(row["name"])), version=version, editable=editable))
        else:
            unread.append(shown(line))
    return Listing(kind="pip list", packages=tuple(merged(packages)), unread=tuple(unread))


def _pip_list_json(text: str, name: str) -> Listing:
    """Read `pip list --format json`."""
    try:
        items: Any = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise UsageError(f"`{name}` is not whole JSON: {err}", hint="write it again: pip list --format json") from err
    packages = []
    for item in items if isinstance(items, list) else ():
        name_there = item.get("name") if isinstance(item, dict) else None
        package = clean_name(name_there) if isinstance(name_there, str) else None
        if package:
            version = clean_version(str(item.get("version", "")))
            editable = "editable_project_location" in item
            packages.append(Listed(name=package, version=version, editable=editable))
    return Listing(kind="pip list", packages=tuple(merged(packages)))
