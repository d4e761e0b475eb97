"""What upstream says of toolkits, compiled packages, GPUs and indexes, and what follows from it. Pure.

`None` means not known and is never guessed. Versions, compute capabilities and drivers are strings as their
source writes them; only packaging compares them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_env.errors import MatrixError
from verl_env.matrix.generations import GenerationFacts
from verl_env.matrix.gpu_names import GpuFacts, by_name
from verl_env.node.names import plain_name
from verl_env.records import RecordError, from_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

# "Not supported for Tegra", nor between Tegra and the others: CUDA Programming Guide, binary compatibility.
TEGRA = frozenset({"5.3", "6.2", "7.2", "8.7"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """Where one fact was read; `fact` names the key it speaks of."""

    fact: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitFacts:
    """A CUDA toolkit: its own driver, the floor of its major, and what it compiles for.

    `forward_branches` are the driver branches that NVIDIA's images of this toolkit accept with a cuda-compat
    package. `compute_min` is the oldest compute capability it compiles for, `compute_added` what it was first
    to know.
    """

    version: str
    driver: str | None = None
    minor_driver: str | None = None
    forward_branches: tuple[str, ...] | None = None
    compute_min: str | None = None
    compute_added: tuple[str, ...] = ()
    source: tuple[Cited, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """One build of a package that carries device code.

    `version` is a release (`2.11.0`) or a minor (`2.11`: each release of it). `indexes` are the symbols of
    mirrors.toml that serve it; `default` among them makes it what a version without a local label means.
    `cpu` is true for a build without CUDA. `architectures` are binaries: `"9.0"` runs on its major from that
    minor on, `"9.0a"` on 9.0 only, `"10.0f"` within its family. `ptx` is code that a driver can compile for
    newer GPUs. Both speak of what the ordinary kernels of the main library were compiled for; `libraries` says
    of each library what else there is. `torch` is the torch release it was built against, `tag` the platform
    tag, `glibc` the newest symbol version that its libraries ask for. `read` is `wheel` when the wheel that
    `source` names was opened for it, `table` when a document says so.
    """

    package: str
    version: str
    machine: str
    read: str
    source: str
    cuda: str | None = None
    cpu: bool = False
    local: str | None = None
    indexes: tuple[str, ...] = ()
    architectures: tuple[str, ...] | None = None
    ptx: tuple[str, ...] | None = None
    python: tuple[str, ...] | None = None
    torch: str | None = None
    tag: str | None = None
    glibc: str | None = None
    libraries: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Another place with the same files; `links` when it is a flat page (find-links), not a simple index."""

    name: str
    url: str
    links: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a symbol of the pins stands for; `default` has no URL: it is whatever uv is set up with.

    A URL may hold `{version}`: the place serves one release of its package a page.
    """

    symbol: str
    where: str
    url: str | None = None
    links: bool = False
    mirrors: tuple[Mirror, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSet:
    """What `--mirror ID` stands for: every source's mirror called `name`, and variables for the environment.

    The `exports` are written only where the lock has the package `needs`. `note` says what else that means.
    """

    id: str
    where: str
    name: str = ""
    exports: dict[str, str] = field(default_factory=dict)
    needs: str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts of a matrix, with their look-ups."""

    toolkits: tuple[ToolkitFacts, ...]
    builds: tuple[BuildFacts, ...]
    gpus: tuple[GpuFacts, ...]
    sources: tuple[SourceFacts, ...]
    generations: tuple[GenerationFacts, ...] = ()
    mirror_sets: tuple[MirrorSet, ...] = ()

    def toolkit(self, version: str) -> ToolkitFacts | None:
        """Return the toolkit of this version's minor: `13.0.88` is toolkit 13.0."""
        minor = _minor(version)
        return next((it for it in self.toolkits if _minor(it.version) == minor), None)

    def source(self, symbol: str) -> SourceFacts | None:
        """Return what a symbol of the pins stands for."""
        return next((it for it in self.sources if it.symbol == symbol), None)

    def gpu(self, name: str) -> GpuFacts | None:
        """Return the GPU that people, NVML or a scheduler call `name`; None when unknown or ambiguous."""
        return self._by_name.get(plain_name(name))

    def variants(self, package: str, version: str, *, machine: str) -> tuple[BuildFacts, ...]:
        """Return every known build of a release, those of exactly this release before those of its minor."""
        same = self._by_minor.get((canonicalize_name(package), machine, _minor(version)), ())
        public = _version(version).public
        exact = [it for it in same if it.version.count(".") > 1 and _version(it.version) == _version(public)]
        return (*exact, *(it for it in same if it.version.count(".") == 1))

    def build(self, package: str, version: str, *, machine: str) -> BuildFacts | None:
        """Return the build that `version` means: by its local label, or without one the default index's."""
        label = _version(version).local
        found = self.variants(package, version, machine=machine)
        if label is None:
            return next((it for it in found if "default" in it.indexes), None)
        return next((it for it in found if it.local == label), None)

    @functools.cached_property
    def _by_name(self) -> dict[str, GpuFacts]:
        """Order the GPUs by every name that they have."""
        return by_name(self.gpus)

    @functools.cached_property
    def _by_minor(self) -> dict[tuple[str, str, tuple[int, int]], list[BuildFacts]]:
        """Order the builds by what every look-up knows: 500 rows are compared in a few milliseconds."""
        found: dict[tuple[str, str, tuple[int, int]], list[BuildFacts]] = {}
        for build in self.builds:
            found.setdefault((build.package, build.machine, _minor(build.version)), []).append(build)
        return found


def admits(build: BuildFacts, compute_capability: str, *, ptx_ok: bool = False) -> bool | None:
    """Say whether the build's device code runs on a GPU; None when what was compiled in is not known.

    The rules are the CUDA Programming Guide's ("Binary compatibility", "PTX compatibility", "Family- and
    architecture-specific features"). `ptx_ok` is for drivers that can compile this toolkit's PTX: under
    minor-version compatibility they cannot.
    """
    if build.cpu:
        return False
    if any(binary_runs(binary, compute_capability) for binary in build.architectures or ()):
        return True
    if ptx_ok and any(ptx_compiles(ptx, compute_capability) for ptx in build.ptx or ()):
        return True
    unknown = build.architectures is None or (ptx_ok and build.ptx is None)
    return None if unknown else False


def binary_runs(binary: str, device: str) -> bool:
    """Apply the binary rule: same major, compiled minor not newer; `a` and Tegra exactly."""
    number = binary.rstrip("af")
    if binary.endswith("a") or number in TEGRA or device in TEGRA:
        return number == device
    compiled, real = _version(number), _version(device)
    return compiled.major == real.major and compiled.minor <= real.minor


def ptx_compiles(ptx: str, device: str) -> bool:
    """Apply the PTX rule: any device that is not older; `a` and `f` PTX stays where its binaries stay."""
    if ptx[-1] in "af":
        return binary_runs(ptx, device)
    return _version(ptx) <= _version(device)


def parse_facts(
    cuda: Mapping[str, Any], torch: Mapping[str, Any], gpus: Mapping[str, Any], mirrors: Mapping[str, Any]
) -> Facts:
    """Build Facts from the four TOML documents; the MatrixError's details have every fault of all of them."""
    faults: list[str] = []
    facts = Facts(
        toolkits=_records(ToolkitFacts, "cuda.toml", _named(cuda, "toolkit", "version"), faults),
        builds=_records(BuildFacts, "torch.toml", _listed(torch, "build"), faults),
        gpus=_records(GpuFacts, "gpus.toml", _listed(gpus, "gpu"), faults),
        sources=_records(SourceFacts, "mirrors.toml", _named(mirrors, "source", "symbol"), faults),
        mirror_sets=_records(MirrorSet, "mirrors.toml", _named(mirrors, "mirror", "id"), faults),
        generations=_records(GenerationFacts, "cuda.toml", _listed(cuda, "generation"), faults),
    )
    if faults:
        raise MatrixError("the facts of the matrix do not hold together", details=tuple(faults))
    return facts


def _named(document: Mapping[str, Any], table: str, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the sub-tables of `table` as (where, plain), each with its own name under `key`."""
    return [(f'{table}."{name}"', {key: name, **plain}) for name, plain in document.get(table, {}).items()]


def _listed(document: Mapping[str, Any], table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of an array of tables as (where, plain)."""
    return [(f"{table}[{number}]", plain) for number, plain in enumerate(document.get(table, []))]


def _records(kind: type[T], file: str, entries: list[tuple[str, dict[str, Any]]], faults: list[str]) -> tuple[T, ...]:
    """Build one record an entry, and note the faults of those that do not fit."""
    found: list[T] = []
    for where, plain in entries:
        try:
            found.append(from_plain(kind, plain))
        except RecordError as err:  # noqa: PERF203 every fault is reported, not the first
            faults.extend(f"{file}: {where}: {fault}" for fault in err.faults)
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _version(text: str) -> Version:
    """Parse a version once: rows ask for the same ones again and again."""
    return Version(text)


@functools.lru_cache(maxsize=4096)
def _minor(text: str) -> tuple[int, int]:
    """Return the major and minor of a version."""
    version = _version(text)
    return version.major, version.minor
