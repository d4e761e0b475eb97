"""What any list of packages says, whatever its format: a value that rows and other lists are compared with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verl_env.lock.package import Package

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A version that someone's tool masked because it looks like an address: `nvidia-cufft-cu12==10.0.0.1`.
_MASKED = re.compile(r"10\.0\.0\.1|0\.0\.0\.0|127\.0\.0\.1|192\.168\.\d+\.\d+|(x+\.)+x+|\*+(\.\*+)*")
UNCOMMITTED = "uncommitted changes"
_LOOKS_LIKE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vcs:
    """Where a package of a repository came from: no credentials in `url`; `commit` is None when nothing names it."""

    kind: str
    url: str
    commit: str | None = None
    subdirectory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a list. `version` is None when the list only wishes (`spec`: `<=0.6.3`) or does not say.

    `hashes` are `sha256:…`; `hashed` is whether all its artifacts have one, None when the list names none. `url` is
    a direct reference without credentials. `foreign` is a package that another manager than pip's kind installed.
    `contents` are hashes of what is installed, by path; `edits` the paths that are not as they were installed. Of an
    editable package `vcs` is its checkout, and `contents` has the hash of what no commit holds, if anything.
    """

    name: str
    version: str | None = None
    spec: str = ""
    files: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    hashed: bool | None = None
    index: str | None = None
    source: str | None = None
    url: str | None = None
    vcs: Vcs | None = None
    editable: bool = False
    foreign: bool = False
    requires: tuple[str, ...] | None = None
    contents: Mapping[str, str] | None = None
    edits: tuple[str, ...] = ()

    @property
    def package(self) -> Package:
        """The line as the rules of coherence judge it."""
        return Package(
            name=self.name,
            version=self.version,
            files=self.files,
            hashed=self.hashed,
            index=self.index,
            source=self.source,
            requires=self.requires,
            contents=self.contents,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list of packages and what else its writer knew. `complete` is whether it means to name every package.

    `python` is as exact as the list has it. `cuda` is the CUDA that torch was built for, `toolkit` one on disk. `row`
    is set for a row or a lock of one. `notes` say what was understood in a way that the reader should know; `unread`
    are lines that mean something and were not understood. `patched` are paths that a lock's patch changes.
    """

    kind: str
    packages: tuple[Listed, ...] = ()
    complete: bool = True
    python: str | None = None
    cuda: str | None = None
    toolkit: str | None = None
    driver: str | None = None
    glibc: str | None = None
    machine: str | None = None
    gpus: tuple[str, ...] = ()
    capability: str | None = None
    row: str | None = None
    allow: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = field(default=())

    @property
    def versions(self) -> dict[str, str]:
        """Name to version, for packages that have one."""
        return {it.name: it.version for it in self.packages if it.version}

    @property
    def minor(self) -> str | None:
        """The Python minor, as `"3.12"`."""
        return ".".join(self.python.split(".")[:2]) if self.python else None

    def of(self, name: str) -> Listed | None:
        """Return a package by its normalised name."""
        return next((it for it in self.packages if it.name == name), None)


def clean_name(text: str) -> str | None:
    """Return a package's normalised name (PEP 503), or None for what cannot be one."""
    return str(canonicalize_name(text)) if _LOOKS_LIKE_NAME.fullmatch(text) else None


def clean_version(text: str) -> str | None:
    """Return a version as its list writes it, or None for what is no PEP 440 version."""
    try:
        Version(text)
    except InvalidVersion:
        return None
    return text.strip()


def public_of(text: str) -> str:
    """Return a version without its local label."""
    return Version(text).public


def merged(packages: Iterable[Listed]) -> Iterator[Listed]:
    """Keep the first line of each (name, version): reports repeat pip's list as conda's."""
    seen: set[tuple[str, str | None, str]] = set()
    for package in packages:
        key = (package.name, package.version, package.spec)
        if key not in seen:
            seen.add(key)
            yield package


def without_masked(packages: Iterable[Listed]) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """Take away versions that a scrubber of addresses wrote, and name those packages."""
    kept: list[Listed] = []
    masked: list[str] = []
    for package in packages:
        hidden = package.version is not None and _MASKED.fullmatch(package.version)
        kept.append(replace(package, version=None) if hidden else package)
        masked += [package.name] if hidden else []
    return tuple(kept), tuple(dict.fromkeys(masked))
