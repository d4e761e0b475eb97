"""A row: one validated set, as `matrices/rows/<id>.toml` writes it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from verl_env.matrix.attention import Attention
from verl_env.matrix.builds import Build

ENGINES = ("vllm", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned:
    """A PEP 508 requirement that steers the resolution, and why it is there."""

    spec: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdist:
    """A package that exists only as a source distribution, and why that is accepted."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """How the pins were made: what `matrix resolve` gives to uv.

    `glibc` is the highest manylinux level that wheels may ask for, and `glibc_of` another one for some architectures;
    the row's floor is computed from the result.
    `sources` names the source of packages that do not come from the default index. `exclude_newer` is a date, and
    `exclude_newer_package` another one for some packages (one that was uploaded again, say).
    """

    requirements: tuple[str, ...]
    constraints: tuple[Reasoned, ...] = ()
    overrides: tuple[Reasoned, ...] = ()
    sdists: tuple[Sdist, ...] = ()
    build_requirements: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    exclude_newer: dt.date | None = None
    exclude_newer_package: dict[str, dt.date] = field(default_factory=dict)
    glibc: str = "2.35"
    glibc_of: dict[str, str] = field(default_factory=dict)

    def glibc_on(self, arch: str) -> str:
        """Return the manylinux level for one architecture: some packages ask for more on aarch64 than on x86_64."""
        return self.glibc_of.get(arch, self.glibc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """Modules whose import shows that the set holds together, each imported in a process of its own."""

    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run that showed something of the pins whose digest it names; written by `matrix prove`.

    `over` says which packages were a base's, where the environment was laid over one. `shown` has what each check of a
    GPU found, by its name; what was skipped says so.
    """

    level: str
    date: dt.date
    python: str
    arch: str
    pins: str
    device: str
    glibc: str
    by: str
    over: str = ""
    shown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A rule that upstream's own pins break: which, where (`what`; for `path-clash` a path, `*` allowed), and why.

    `why` says the reason and what it costs.
    """

    rule: str
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a fact of this row was read."""

    fact: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One validated set. `cuda` is absent for a CPU row; `broken` says why a known pair cannot be mended."""

    title: str
    python: tuple[str, ...]
    arch: tuple[str, ...]
    set: dict[str, str]
    cuda: str | None = None
    resolve: Resolve | None = None
    smoke: Smoke | None = None
    exports: dict[str, str] = field(default_factory=dict)
    attention: Attention | None = None
    broken: str | None = None
    allow: tuple[Allowance, ...] = ()
    build: tuple[Build, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    source: tuple[Source, ...] = ()

    @property
    def engine(self) -> str | None:
        """The inference engine, as `vllm` or `sglang`, or None."""
        return next((name for name in ENGINES if name in self.set), None)

    @property
    def engine_label(self) -> str:
        """The engine with its version, for people: `vllm 0.24.0`, or a dash."""
        return f"{self.engine} {self.set[self.engine]}" if self.engine else "-"
