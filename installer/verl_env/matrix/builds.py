"""A row's builds: wheels that nobody publishes, compiled once from a pinned sdist. `[[build]]` of a row. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.attention import Attention
from verl_env.matrix.facts import binary_runs
from verl_env.matrix.pins import Pin
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from collections.abc import Iterable

# Words in a build's variables that stand for the architectures it is for: `9.0;10.0` and `90;100`.
ARCHITECTURES, SM = "{architectures}", "{sm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """An sdist. `size` is in bytes; `sha256` is bare hex."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One package to compile for a row.

    `requires` are what its build needs, one file a package and machine. `toolkit` is the CUDA minor that compiles it,
    `architectures` the compute capabilities that it can be compiled for. `job_gb` is the memory that one compiler
    needs at most. `environment` are variables of its build; see ARCHITECTURES and SM. `imports` show that it loads.
    `attention` is the path that verl's actor takes where it is installed.
    """

    package: str
    version: str
    sdist: SourceFile
    toolkit: str
    architectures: tuple[str, ...]
    job_gb: float
    why: str
    source: str
    requires: tuple[Pin, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    attention: Attention | None = None

    @property
    def pin(self) -> Pin:
        """The sdist as a pin, so that it is looked for as packages are."""
        return Pin(
            name=self.package,
            version=self.version,
            file=self.sdist.file,
            size=self.sdist.size,
            sha256=self.sdist.sha256,
        )

    def requires_on(self, python: str, arch: str, glibc: str) -> tuple[Pin, ...]:
        """Return the one file of each build requirement that suits a Python and machine best."""
        tags = supported_tags(python, arch, glibc)
        best: dict[str, tuple[int, Pin]] = {}
        for pin in self.requires:
            rank = rank_of(pin.file, tags)
            if rank is not None and (pin.name not in best or rank < best[pin.name][0]):
                best[pin.name] = (rank, pin)
        return tuple(pin for _, pin in best.values())

    def variables_for(self, architectures: tuple[str, ...]) -> dict[str, str]:
        """Return the build's own variables with the architectures filled in."""
        joined = ";".join(architectures)
        meant = {ARCHITECTURES: joined, SM: joined.replace(".", "")}
        filled = dict(self.environment)
        for word, value in meant.items():
            filled = {name: text.replace(word, value) for name, text in filled.items()}
        return filled


def targets_for(capabilities: Iterable[str], offered: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to compile for so that these GPUs are served, and the GPUs that nothing on offer serves."""
    wanted: set[str] = set()
    left: list[str] = []
    for capability in dict.fromkeys(capabilities):
        serving = [it for it in offered if binary_runs(it, capability)]
        if serving:
            wanted.add(max(serving, key=Version))
        else:
            left.append(capability)
    return tuple(sorted(wanted, key=Version)), tuple(left)
