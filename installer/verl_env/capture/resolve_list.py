"""A partial list, resolved: what it names exactly is held, the rest is uv's to find. An edge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from verl_env import uv
from verl_env.capture.on_index import Held, Wanted, files_of
from verl_env.capture.unavailable import Unavailable
from verl_env.errors import ResolveError
from verl_env.lock.locate import source_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from verl_env.capture.listing import Listing
    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts

_GLIBC = "2.35"
_NO_WHEELS = re.compile(
    r"ecause (?:all versions of )?(?P<name>[a-z0-9-]+)(?:==\S+)? ha(?:ve|s) no usable wheels and (?:only|you)"
)


def resolve_list(
    listing: Listing, held: Sequence[Held], python: str, arch: str, indexes: Indexes, facts: Facts
) -> tuple[tuple[Held, ...], tuple[Unavailable, ...]]:
    """Resolve a list's versions with what they need; where there is no solution, say so in uv's words."""
    lines = [f"{it.pin.name}=={it.pin.version}" for it in held]
    named = {it.pin.name for it in held}
    lines += [
        f"{it.name}{it.spec}" for it in listing.packages if not it.version and it.name not in named and not it.vcs
    ]
    glibc = listing.glibc or _GLIBC
    words = ["--python-version", python, "--python-platform", f"{arch}-manylinux_{glibc.replace('.', '_')}"]
    words += ["--only-binary", ":all:", "--prerelease", "if-necessary-or-explicit"]
    sdists = dict.fromkeys(["antlr4-python3-runtime", *(it.pin.name for it in held if it.pin.is_sdist)])
    words += [word for name in sdists for word in ("--no-binary", name)]
    words += ["--config-file", "uv.toml", *_index_words(held, indexes, facts)]
    try:
        document = uv.compile_pylock("\n".join([*lines, ""]), words, {"uv.toml": _static(sdists)})
    except ResolveError as err:
        said = " ".join(line.strip() for line in err.details if line.strip())
        if source_only := _NO_WHEELS.search(said):
            return (), (_only_source(source_only["name"]),)
        return (), (
            Unavailable(
                name=_named_first(said, named) or "the set",
                version=None,
                reason="incoherent",
                what=f"no solution as pasted: {said[:600]}",
                remedy="start from the nearest row, or take out what clashes",
            ),
        )
    return _held(document, held, python, arch)


def _static(sdists: Iterable[str]) -> str:
    """Say that sdists need nothing: to find out, uv would run their build, which no hash vouches for."""
    return "".join(f'[[dependency-metadata]]\nname = "{name}"\nrequires-dist = []\n' for name in sdists)


def _only_source(name: str) -> Unavailable:
    """Name a package without wheels: to resolve it, uv would run its build, which no hash vouches for."""
    return Unavailable(
        name=name,
        version=None,
        reason="no-wheel",
        what=f"{name} is on the index only as source",
        remedy=f"build a wheel of {name} and set UV_FIND_LINKS to its folder, or take it out of the list",
    )


def _index_words(held: Sequence[Held], indexes: Indexes, facts: Facts) -> list[str]:
    words: list[str] = []
    for source in dict.fromkeys(it.pin.source for it in held if it.pin.source != "default"):
        pins = tuple(it.pin for it in held if it.pin.source == source)
        words += [word for pair in source_options(source, pins, indexes, facts) for word in pair]
    words += [word for url in indexes.extra for word in ("--index", url)]
    words += ["--default-index", indexes.default] if indexes.default else []
    return [*words, "--index-strategy", "unsafe-best-match"]


def _named_first(said: str, names: set[str]) -> str | None:
    """Return the package of the list that uv's explanation names first."""
    return next((word for word in said.replace("==", " ").split() if word in names), None)


def _held(
    document: dict[str, Any], before: Sequence[Held], python: str, arch: str
) -> tuple[tuple[Held, ...], tuple[Unavailable, ...]]:
    """Take one file a package; what was found before stays as it was found."""
    known = {it.pin.name: it for it in before}
    held: list[Held] = []
    missing: list[Unavailable] = []
    for package in document["packages"]:
        if package["name"] in known:
            held.append(known[package["name"]])
            continue
        wanted = Wanted(name=package["name"], version=str(package["version"]))
        found = files_of(wanted, package, _source(package, before), python, arch)
        (missing if isinstance(found, Unavailable) else held).append(found)  # type: ignore[arg-type]
    return tuple(held), tuple(missing)


def _source(package: dict[str, Any], before: Sequence[Held]) -> str:
    """Return the source of a package: that of another with the same label, else the default."""
    label = str(package["version"]).partition("+")[2]
    same = (it.pin.source for it in before if label and it.pin.version.endswith(f"+{label}"))
    return next(same, "default")
