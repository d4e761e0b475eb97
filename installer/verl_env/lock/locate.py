"""Where each pinned file is, asked of the indexes this node is set up with. The edge of this room.

uv does the asking, so that proxies, certificates, netrc and keyrings work as they do for it. Each place is asked by
itself: uv takes a release from one index and fails when its hash is not the pinned one, so a wrong file in one index
would hide the right one in the next. What comes back is held against the pins: uv compares hashes when it installs,
not when it compiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from verl_env import uv
from verl_env.errors import ResolveError, VerlEnvError
from verl_env.indexes import masked
from verl_env.lock.render import file_of
from verl_env.matrix.pins import WHEELHOUSE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin

# Releases that one place lacks, before it is given up: uv names them one at a time.
_MOST_ABSENT = 12
_ABSENT = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)(?:==| was not found| has no )")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One index, folder or page of wheels, as uv is told of it when it stands beside others; `url` may have a login."""

    option: str = ""
    url: str = ""

    @property
    def shown(self) -> str:
        """The place without credentials."""
        return masked(self.url) or "the default index"

    @property
    def beside(self) -> tuple[str, ...]:
        """The options of uv for this place beside the default index."""
        return (self.option, self.url) if self.option in ("--index", "--find-links") else ()

    @property
    def alone(self) -> tuple[str, ...]:
        """The options of uv for this place and no other."""
        if self.option == "--find-links":
            return ("--no-index", "--find-links", self.url)
        return ("--default-index", self.url) if self.url else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How many files of a source came from which place; `place` has no credentials."""

    source: str
    place: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Files that one place has, and the options with which uv asks that place and no other."""

    options: tuple[str, ...]
    files: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where files are: `urls` by file name, the index options with which uv finds all of them, and who served what.

    `parts` are the same files place by place: an index may have another file under the name of one that it did not
    serve, which uv would take and refuse.
    """

    urls: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    served: tuple[Served, ...] = ()
    parts: tuple[Part, ...] = ()


class UnreachableError(VerlEnvError):
    """Files of one source that no index in reach has."""

    code = "unreachable"
    exit_code = ResolveError.exit_code


def locate(pins: tuple[Pin, ...], python: str, indexes: Indexes, facts: Facts) -> Located:
    """Find every pinned file, source by source; raise UnreachableError naming what is out of reach."""
    urls: dict[str, str] = {}
    options: dict[tuple[str, ...], None] = {}
    served: list[Served] = []
    parts: dict[tuple[str, ...], set[str]] = {}
    for source in sorted({pin.source for pin in pins}):
        mine = tuple(pin for pin in pins if pin.source == source)
        for place, found in _locate_source(source, mine, python, indexes, facts):
            urls.update(found)
            options[place.beside] = None
            parts.setdefault(place.alone, set()).update(found)
            served.append(Served(source=source, place=place.shown, files=len(found)))
    words = tuple(word for option in options for word in option)
    return Located(
        urls=urls,
        options=(*words, *_policy(indexes)),
        served=tuple(served),
        parts=tuple(Part(options=alone, files=frozenset(files)) for alone, files in parts.items()),
    )


def base_options(indexes: Indexes) -> tuple[str, ...]:
    """Return uv's options for every index and folder that is set up here."""
    places = (*_folders(indexes), *_extras(indexes))
    return (*(word for place in places for word in place.beside), *_policy(indexes))


def _policy(indexes: Indexes) -> tuple[str, ...]:
    """Under pins any index may serve a file: its hash says what it is."""
    default = ("--default-index", indexes.default) if indexes.default else ()
    return (*default, "--index-strategy", "unsafe-best-match")


def _folders(indexes: Indexes) -> tuple[Place, ...]:
    return tuple(Place(option="--find-links", url=place) for place in indexes.find_links)


def _extras(indexes: Indexes) -> tuple[Place, ...]:
    return tuple(Place(option="--index", url=url) for url in indexes.extra)


def _places(source: str, pins: tuple[Pin, ...], indexes: Indexes, facts: Facts) -> tuple[Place, ...]:
    """Return where to look for a source's files: what the user names for it, then what is near, then its own index."""
    default = Place(option="--default-index" if indexes.default else "", url=indexes.default or "")
    own = tuple(Place(option=option, url=url) for option, url in source_options(source, pins, indexes, facts))
    near = (*_folders(indexes), *_extras(indexes))
    if source == "default":
        return (default, *near)
    named = source in indexes.by_source or source in indexes.mirrors
    return (*own, *near, default) if named else (*near, default, *own)


def source_options(source: str, pins: tuple[Pin, ...], indexes: Indexes, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the index options of a source: the one the user names for it, else the matrix's own."""
    if chosen := indexes.by_source.get(source):
        yield ("--index", chosen)
        return
    if mirror := indexes.mirrors.get(source):
        yield mirror
    known = facts.source(source)
    if known is None or known.url is None:
        return
    version = pins[0].version.split("+")[0] if pins else ""
    yield ("--find-links" if known.links else "--index", known.url.replace("{version}", version))


def _locate_source(
    source: str, pins: tuple[Pin, ...], python: str, indexes: Indexes, facts: Facts
) -> Iterator[tuple[Place, dict[str, str]]]:
    """Ask one place after the other for what the ones before did not have; yield each that had something."""
    missing = pins
    tried: dict[str, list[str]] = {}
    for place in dict.fromkeys(_places(source, pins, indexes, facts)):
        found, causes = _ask(missing, python, place)
        if found:
            yield place, found
        missing = tuple(pin for pin in missing if pin.file not in found)
        for pin in missing:
            tried.setdefault(pin.file, []).append(f"{place.shown}: {causes[pin.file]}")
        if not missing:
            return
    raise _unreachable(source, missing, tried)


def _unreachable(source: str, missing: tuple[Pin, ...], tried: dict[str, list[str]]) -> UnreachableError:
    """Name the first files that no place has, and what each place said."""
    names = ", ".join(f"{pin.name} {pin.version}" for pin in missing[:4]) + (" …" if len(missing) > 4 else "")  # noqa: PLR2004
    said = dict.fromkeys(line for pin in missing[:4] for line in tried.get(pin.file, ()))
    setting = f"VERL_ENV_INDEX_{source.upper().replace('-', '_')}=URL"
    hint = f"name an index that has them: {'--index URL' if source == 'default' else setting}"
    if source == WHEELHOUSE:
        hint = (
            f"build it here: verl-env build {missing[0].name}; or name the wheelhouse that has it: VERL_ENV_WHEELHOUSE"
        )
    return UnreachableError(f"out of reach from this node: {names} (source `{source}`)", details=tuple(said), hint=hint)


def _ask(pins: tuple[Pin, ...], python: str, place: Place) -> tuple[dict[str, str], dict[str, str]]:
    """Ask one place for these files; return the URLs of what it has, and why it has not the others, by file name."""
    causes: dict[str, str] = {}
    wanted = list(pins)
    while wanted and len(causes) < _MOST_ABSENT:
        try:
            listed = _list_releases(wanted, python, (*place.alone, "--index-strategy", "unsafe-best-match"))
        except ResolveError as err:
            named = set(_ABSENT.findall("\n".join(err.details)))
            absent = [pin for pin in wanted if pin.name in named] or wanted
            causes |= {pin.file: _cause(err) for pin in absent}
            wanted = [pin for pin in wanted if pin not in absent]
            continue
        judged = {pin.file: _judge(pin, listed.get(pin.name, {})) for pin in wanted}
        causes |= {file: cause for file, (_, cause) in judged.items() if cause}
        return {file: url for file, (url, cause) in judged.items() if not cause}, causes
    return {}, causes | {pin.file: "too many others are missing here" for pin in wanted}


def _list_releases(pins: Sequence[Pin], python: str, options: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Let uv list the files of these releases, by package."""
    requirements = "".join(f"{pin.name}=={pin.version}\n" for pin in pins)
    # Static metadata keeps uv from building sdists, which would run code that no hash has vouched for yet.
    metadata = "".join(
        f'[[dependency-metadata]]\nname = "{pin.name}"\nversion = "{pin.version}"\nrequires-dist = []\n'
        for pin in pins
        if pin.is_sdist
    )
    words = ["--universal", "--no-deps", "--python-version", python, "--config-file", "uv.toml", *options]
    document = uv.compile_pylock(requirements, words, {"uv.toml": metadata})
    return {package["name"]: package for package in document["packages"]}


def _judge(pin: Pin, package: dict[str, Any]) -> tuple[str, str]:
    """Return the URL of the pinned file, or why it is not that very file."""
    for file in [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]:
        place = file.get("url") or file.get("path", "")
        if (file.get("name") or file_of(place)) != pin.file:
            continue
        found = file.get("hashes", {}).get("sha256")
        if found == pin.sha256:
            return clean_url(place), ""
        if found is None:
            return "", f"`{pin.file}` has no sha256 here"
        return "", f"`{pin.file}` is another file here (sha256 {found}, pinned is {pin.sha256}): do not install it"
    return "", f"it has {pin.name} {pin.version}, and not the file `{pin.file}`"


def clean_url(url: str) -> str:
    """Return a URL without what may be secret: user name, password, and a query (signed URLs); nor fragment."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rsplit("@", 1)[-1], parts.path, "", ""))


def _cause(err: ResolveError) -> str:
    """Return the last line of what uv said, or the message itself when it is ours."""
    said = [line.strip() for line in err.details if line.strip() and not line.startswith("hint:")]
    return masked(said[-1].removeprefix("cause: ")) if said else err.message
