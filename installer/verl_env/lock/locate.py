"""Where each pinned file is, asked of the indexes this node is set up with. The edge of this room.

uv does the asking, so that proxies, certificates, netrc and keyrings work as they do for it. What comes back is
held against the pins: uv compares hashes when it installs, not when it compiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from verl_env import uv
from verl_env.errors import ResolveError, VerlEnvError
from verl_env.indexes import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where files are: `urls` by file name, and the index options with which uv finds all of them."""

    urls: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


class UnreachableError(VerlEnvError):
    """Files of one source that no index in reach has."""

    code = "unreachable"
    exit_code = ResolveError.exit_code


def locate(pins: tuple[Pin, ...], python: str, indexes: Indexes, facts: Facts) -> Located:
    """Find every pinned file, source by source; raise UnreachableError naming the source that is out of reach."""
    urls: dict[str, str] = {}
    options: dict[tuple[str, ...], None] = {}
    for source in sorted({pin.source for pin in pins}):
        mine = tuple(pin for pin in pins if pin.source == source)
        found, used = _locate_source(source, mine, python, indexes, facts)
        urls.update(found)
        options |= dict.fromkeys(used)
    return Located(urls=urls, options=(*(word for option in options for word in option), *_policy(indexes)))


def base_options(indexes: Indexes) -> tuple[str, ...]:
    """Return uv's options for every index and folder that is set up here."""
    rungs = (*_folders(indexes), *_extras(indexes))
    return (*(word for option in rungs for word in option), *_policy(indexes))


def _policy(indexes: Indexes) -> tuple[str, ...]:
    """Under pins any index may serve a file: its hash says what it is."""
    default = ("--default-index", indexes.default) if indexes.default else ()
    return (*default, "--index-strategy", "unsafe-best-match")


def _folders(indexes: Indexes) -> tuple[tuple[str, ...], ...]:
    return tuple(("--find-links", place) for place in indexes.find_links)


def _extras(indexes: Indexes) -> tuple[tuple[str, ...], ...]:
    return tuple(("--index", url) for url in indexes.extra)


def _rungs(source: str, pins: tuple[Pin, ...], indexes: Indexes, facts: Facts) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield what to look in beside the default index, narrowest first.

    Narrowest first, because uv takes a release from the first index that has it: another build of the same
    release there would hide the pinned file.
    """
    if source == "default":
        yield ()
    own = tuple(source_options(source, pins, indexes, facts))
    folders, extras = _folders(indexes), _extras(indexes)
    yield from dict.fromkeys(rung for rung in (folders, (*folders, *extras)) if rung)
    if own:
        yield own


def _locate_source(
    source: str, pins: tuple[Pin, ...], python: str, indexes: Indexes, facts: Facts
) -> tuple[dict[str, str], tuple[tuple[str, ...], ...]]:
    """Climb the rungs until every file of a source is found; return where they are and the options that led there."""
    tried: list[str] = []
    for rung in _rungs(source, pins, indexes, facts):
        options = [word for option in rung for word in option]
        try:
            return _ask(pins, python, (*options, *_policy(indexes))), rung
        except ResolveError as err:
            place = " ".join(masked(option[1]) for option in rung) or "the default index"
            tried.append(f"{place}: {_cause(err)}")
    names = ", ".join(f"{pin.name} {pin.version}" for pin in pins[:4]) + (" …" if len(pins) > 4 else "")  # noqa: PLR2004
    raise UnreachableError(
        f"out of reach from this node: {names} (source `{source}`)",
        details=tuple(tried),
        hint="name an index that has them: "
        + ("--index URL" if source == "default" else f"VERL_ENV_INDEX_{source.upper().replace('-', '_')}=URL"),
    )


def source_options(source: str, pins: tuple[Pin, ...], indexes: Indexes, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the index options of a source: the one the user names for it, else the matrix's own."""
    if chosen := indexes.by_source.get(source):
        yield ("--index", chosen)
        return
    known = facts.source(source)
    if known is None or known.url is None:
        return
    version = pins[0].version.split("+")[0] if pins else ""
    yield ("--find-links" if known.links else "--index", known.url.replace("{version}", version))


def _ask(pins: tuple[Pin, ...], python: str, options: tuple[str, ...]) -> dict[str, str]:
    """Let uv list the files of these releases, and pick the pinned one of each."""
    requirements = "".join(f"{pin.name}=={pin.version}\n" for pin in pins)
    # Static metadata keeps uv from building sdists, which would run code that no hash has vouched for yet.
    metadata = "".join(
        f'[[dependency-metadata]]\nname = "{pin.name}"\nversion = "{pin.version}"\nrequires-dist = []\n'
        for pin in pins
        if pin.is_sdist
    )
    words = ["--universal", "--no-deps", "--python-version", python, "--config-file", "uv.toml", *options]
    document = uv.compile_pylock(requirements, words, {"uv.toml": metadata})
    listed = {package["name"]: package for package in document["packages"]}
    return {pin.file: _url_of(pin, listed[pin.name]) for pin in pins}


def _url_of(pin: Pin, package: dict[str, Any]) -> str:
    """Return the URL of the pinned file, if the index has that very file."""
    files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    for file in files:
        if unquote(file["url"].rsplit("/", 1)[-1]) != pin.file:
            continue
        if (found := file.get("hashes", {}).get("sha256")) != pin.sha256:
            raise ResolveError(
                f"`{pin.file}` is another file here: sha256 {found}, pinned is {pin.sha256}",
                hint="do not install it; ask whoever keeps this index",
            )
        return masked(file["url"]).replace("***@", "")
    raise ResolveError(f"the index has {pin.name} {pin.version}, and not the file `{pin.file}`")


def _cause(err: ResolveError) -> str:
    """Return the last line of what uv said, or the message itself when it is ours."""
    said = [line.strip() for line in err.details if line.strip() and not line.startswith("hint:")]
    return said[-1].removeprefix("cause: ") if said else err.message
