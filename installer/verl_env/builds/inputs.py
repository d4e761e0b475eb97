"""Everything that decides what a compiled wheel is, and its key: the same inputs find the same wheel again. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.records import to_plain

if TYPE_CHECKING:
    from verl_env.matrix.builds import Build
    from verl_env.matrix.pins import Pin

KEY_LENGTH = 20  # hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a wheel is compiled against: a Python minor, a machine, and torch as it says of itself.

    `torch` is with its label; `cuda` is the CUDA that torch is built with, None for a torch without.
    """

    python: str
    machine: str
    torch: str
    cuda: str | None

    @property
    def label(self) -> str:
        """The local version label of what is compiled against it: `cu130torch2.11`."""
        torch = ".".join(str(part) for part in Version(self.torch).release[:2])
        cuda = f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"
        return f"{cuda}torch{torch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of one build. `sdist` is a sha256, `requires` are `name==version sha256`, `nvcc` is its full version.

    `variables` change the result; how many compilers run beside each other does not, and is not here. Neither are the
    host's own compiler and C library: a wheel is used on other hosts than its own, and its record says what built it.
    """

    package: str
    version: str
    sdist: str
    requires: tuple[str, ...]
    target: Target
    nvcc: str
    architectures: tuple[str, ...]
    variables: dict[str, str]


def inputs_of(
    build: Build, requires: tuple[Pin, ...], target: Target, nvcc: str, architectures: tuple[str, ...]
) -> Inputs:
    """Gather them."""
    return Inputs(
        package=build.package,
        version=build.version,
        sdist=build.sdist.sha256,
        requires=tuple(sorted(f"{pin.name}=={pin.version} {pin.sha256}" for pin in requires)),
        target=target,
        nvcc=nvcc,
        architectures=architectures,
        variables={"TORCH_CUDA_ARCH_LIST": ";".join(architectures), **build.variables_for(architectures)},
    )


def key_of(inputs: Inputs) -> str:
    """Return the start of a sha256 over every input: the name of its folder."""
    content = json.dumps(to_plain(inputs), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:KEY_LENGTH]


def adopted_key(sha256: str, target: Target) -> str:
    """Return the key of a wheel that was made elsewhere: the file, and what it was checked against."""
    content = json.dumps([sha256, to_plain(target)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:KEY_LENGTH]
