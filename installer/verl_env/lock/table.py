"""`[tool.verl-env]` of a lockfile: what an installer of ours needs beyond PEP 751. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from verl_env.lock.captured import Captured
from verl_env.matrix.pins import Pin

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFile:
    """A requirements file that was given: its name as given, and its lines with nested files written out."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a lock was asked for beyond its row, so that `lock --check` needs no arguments.

    Only what changes the packages is here: the node and the index that a lock was written on do not. `wishes` are
    requirements (`--with`), `upgrade` those of packages whose pins were let go, `resolve` whether all of them were.
    """

    wishes: tuple[str, ...] = ()
    files: tuple[AskedFile, ...] = ()
    upgrade: tuple[str, ...] = ()
    resolve: bool = False
    exclude_newer: dt.date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """A checkout that is installed over the pins, in place of the package of the same name.

    `path` is as given, relative to the lockfile unless absolute. `commit` is None outside of git. `dirty` says that
    files differed from the commit, `pushed` that a remote's branch had it, as far as the checkout knew. `remote` has no
    credentials. `dependencies` are what it declares, with the row's extras, and None when that is not written down
    statically.
    """

    name: str
    path: str
    version: str | None = None
    commit: str | None = None
    remote: str | None = None
    dirty: bool = False
    pushed: bool = False
    dependencies: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A wheel that is in no index: `key` names it in a wheelhouse, `origin` is `built` or `adopted`.

    `sdist` is the sha256 of the source that a built one was compiled from. `torch` and `cuda` are what it was compiled
    against, `architectures` the GPUs that it has code for, `glibc` the oldest that it loads on.
    """

    package: str
    key: str
    origin: str
    torch: str
    cuda: str
    architectures: tuple[str, ...]
    sdist: str = ""
    glibc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table. `driver` is the oldest NVIDIA driver that carries `cuda` without cuda-compat; both absent on CPU rows.

    Sizes are in bytes. `sources` maps packages to their source where it is not `default`; `build` is what the
    sdists among the packages need to be built. `added` names packages that are not the row's, `moved` gives the
    row's version of those that were moved; `unproven` says why the row's proof does not cover this lock. `allow`
    names the rules that the user set aside; `built` are wheels that no index has.
    """

    schema: int
    digest: str
    row: str
    title: str
    python: str
    arch: str
    imports: tuple[str, ...] = ()
    cuda: str | None = None
    driver: str | None = None
    glibc: str | None = None
    download_bytes: int = 0
    installed_bytes: int = 0
    installed_files: int = 0
    set: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    attention: str | None = None
    settings: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    build: tuple[Pin, ...] = ()
    added: tuple[str, ...] = ()
    moved: dict[str, str] = field(default_factory=dict)
    unproven: str | None = None
    allow: tuple[str, ...] = ()
    asked: Asked | None = None
    editable: Editable | None = None
    captured: Captured | None = None
    built: tuple[Built, ...] = ()
