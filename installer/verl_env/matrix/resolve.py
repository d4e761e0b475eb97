"""A row's closure, resolved afresh by uv: how pins are made. The maintainer's edge."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from verl_env import uv
from verl_env.errors import ResolveError
from verl_env.indexes import masked
from verl_env.lock.locate import base_options, source_options
from verl_env.matrix.pins import Pin, Pins, make_pins
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from packaging.tags import Tag

    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.rows import Resolve


def resolve_row(entry: Entry, python: str, arch: str, indexes: Indexes, facts: Facts) -> Pins:
    """Resolve one variant of a row; raises ResolveError with uv's words, or naming a file that may not be pinned."""
    asked = entry.row.resolve
    if asked is None:
        raise ResolveError(f"row `{entry.id}` has no [resolve] table", hint="a row without one can only be shown")
    if missing := [name for name in asked.sources if canonicalize_name(name) != name]:
        raise ResolveError(f"row `{entry.id}`: names under [resolve.sources] must be normalised: {missing}")
    platform = [
        "--python-version",
        python,
        "--python-platform",
        f"{arch}-manylinux_{asked.glibc_on(arch).replace('.', '_')}",
    ]
    document = uv.compile_pylock(
        "\n".join(asked.requirements) + "\n",
        [*platform, *_policy(asked), *_index_options(asked, indexes, facts)],
        {
            "constraints.txt": "".join(f"{it.spec}\n" for it in asked.constraints),
            "overrides.txt": "".join(f"{it.spec}\n" for it in asked.overrides),
        },
    )
    build: dict[str, Any] = {"packages": []}
    if asked.build_requirements:
        wanted = "\n".join(asked.build_requirements) + "\n"
        only_default = base_options(replace(indexes, extra=(), find_links=()))
        build = uv.compile_pylock(wanted, [*platform, "--only-binary", ":all:", *only_default])
    tags = supported_tags(python, arch, asked.glibc_on(arch))
    return make_pins(
        entry.id,
        python,
        arch,
        pins=tuple(_pin(package, asked, tags) for package in document["packages"]),
        build=tuple(_pin(package, asked, tags) for package in build["packages"]),
        made=dt.datetime.now(dt.timezone.utc).date(),
    )


def _policy(asked: Resolve) -> list[str]:
    """Wheels only, but for the sdists that the row lists with a reason; nothing newer than its date."""
    options = ["--constraint", "constraints.txt", "--override", "overrides.txt", "--only-binary", ":all:"]
    for sdist in asked.sdists:
        options += ["--no-binary", sdist.name]
    if asked.exclude_newer:
        options += ["--exclude-newer", asked.exclude_newer.isoformat()]
    for name, date in asked.exclude_newer_package.items():
        options += ["--exclude-newer-package", f"{name}={date.isoformat()}"]
    return options


def _index_options(asked: Resolve, indexes: Indexes, facts: Facts) -> list[str]:
    """Add each source's index; what comes from it is held against [resolve.sources] afterwards."""
    options: list[str] = []
    for source in dict.fromkeys(asked.sources.values()):
        name = next(name for name, symbol in asked.sources.items() if symbol == source)
        pin = Pin(name=name, version=_version_of(name, asked), file="", size=0, sha256="", source=source)
        if not _in_local_folder(pin, indexes):
            options += [word for pair in source_options(source, (pin,), indexes, facts) for word in pair]
    # Nothing is pinned yet: a release may come from the default index or from a source that the row names.
    own = replace(indexes, extra=(), find_links=indexes.find_links if asked.sources else ())
    return [*options, *base_options(own)]


def _version_of(name: str, asked: Resolve) -> str:
    """Return the version that the requirements pin a package to, for sources that serve one release a page."""
    prefix = f"{name}=="
    return next((it.split("==")[1].split(";")[0].strip() for it in asked.requirements if it.startswith(prefix)), "")


def _in_local_folder(pin: Pin, indexes: Indexes) -> bool:
    """Whether a configured folder of wheels holds this release, so that its index need not be in reach."""
    start = f"{pin.name.replace('-', '_')}-{pin.version}-"
    folders = [Path(urlsplit(place).path if "://" in place else place) for place in indexes.find_links]
    return any(file.name.startswith(start) for folder in folders if folder.is_dir() for file in folder.iterdir())


def _best(files: list[dict[str, Any]], tags: dict[Tag, int]) -> list[dict[str, Any]]:
    """Return the wheel whose tag ranks first; uv lists several when more than one suits (abi3 beside cp312)."""
    ranked = [(rank_of(unquote(file["url"].rsplit("/", 1)[-1]), tags), file) for file in files]
    suitable = [(rank, file) for rank, file in ranked if rank is not None]
    return [min(suitable, key=lambda it: it[0])[1]] if suitable else []


def _pin(package: dict[str, Any], asked: Resolve, tags: dict[Tag, int]) -> Pin:
    """Take the one file that suits this platform best; refuse what no hash vouches for or no row allows."""
    name, version = package["name"], package["version"]
    sdists = {canonicalize_name(it.name) for it in asked.sdists}
    files = _best(package.get("wheels", []), tags) or (
        [package["sdist"]] if "sdist" in package and name in sdists else []
    )
    if len(files) != 1:
        raise ResolveError(
            f"{name} {version} has {len(files)} files for this platform, and pins need one",
            hint="an sdist must be listed under [resolve] sdists with a reason",
        )
    file = files[0]
    source = asked.sources.get(name, "default")
    if source == "default" and file["url"].startswith("file:"):
        raise ResolveError(f"{name} {version} came from `{masked(file['url'])}`, which no source of the row names")
    if "sha256" not in file.get("hashes", {}):
        raise ResolveError(f"{name} {version} has no sha256 on its index", hint="only hashed files can be pinned")
    return Pin(
        name=name,
        version=version,
        file=unquote(file["url"].rsplit("/", 1)[-1]),
        size=_size(file),
        sha256=file["hashes"]["sha256"],
        source=source,
    )


def _size(file: dict[str, Any]) -> int:
    """Return a file's size in bytes: what the index says, or what lies in the folder."""
    if "size" in file:
        return int(file["size"])
    if file["url"].startswith("file:"):
        return Path(unquote(urlsplit(file["url"]).path)).stat().st_size
    raise ResolveError(f"`{file['url'].rsplit('/', 1)[-1]}`: its index states no size")
