"""What must not stand together in one environment, as named rules. Pure.

The same rules judge pins before a lock is written, any list of packages that someone has (`verl-env check`), and
an environment that is in use. Each refusal says which packages, why it breaks and what to write; `--allow RULE`
overrides one.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from verl_env.lock.coherence_cuda import (
    cpu_torch_beside_cuda,
    cuda_bindings_major,
    nvcc_minor,
    other_cuda,
    two_cuda_majors,
)
from verl_env.lock.coherence_files import (
    artifact_without_hash,
    duplicate_package,
    path_clash,
    wheel_for_another_python,
    wrong_project,
)
from verl_env.lock.coherence_sets import (
    built_for_another_torch,
    engine_torch,
    flashinfer_versions,
    requirement_broken,
    torch_family,
)
from verl_env.lock.package import Incoherence, Package, package_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from verl_env.matrix.facts import Facts

__all__ = ["RULES", "Incoherence", "Package", "find_incoherences", "package_of"]

# Every rule, in the order they are reported: id -> what it refuses.
RULES: Mapping[str, str] = MappingProxyType(
    {
        "artifact-without-hash": "a file that no hash vouches for",
        "duplicate-package": "one package in two versions",
        "two-cuda-majors": "packages of two CUDA majors",
        "cuda-bindings-major": "Python bindings of another CUDA major than the rest",
        "other-cuda": "packages of another CUDA major than the lock's",
        "nvcc-minor": "nvcc or its headers of another minor than the CUDA runtime",
        "cpu-torch-beside-cuda": "a CPU build of torch beside packages that need CUDA",
        "torch-family": "torch, torchvision and torchaudio of different releases or builds",
        "engine-torch": "vLLM or SGLang beside another torch than they were built against",
        "built-for-another-torch": "an extension whose version says that it was built for another torch",
        "flashinfer-versions": "flashinfer-python, -cubin and -jit-cache of different versions",
        "wrong-project": "a package whose index has another project under its name",
        "wheel-for-another-python": "a wheel that this Python cannot load",
        "path-clash": "two packages that put different contents at one path",
        "requirement-broken": "a package whose own requirement the set does not meet",
    }
)


def find_incoherences(
    packages: Sequence[Package],
    *,
    cuda: str | None = None,
    python: str | None = None,
    machine: str = "x86_64",
    facts: Facts | None = None,
) -> tuple[Incoherence, ...]:
    """Return everything that does not hold together, in the order of RULES.

    `cuda` is the toolkit that the lock states (`"13.0"`, None for CPU work or when not known), `python` the minor
    it is for. With `facts`, builds whose version does not show their CUDA or torch are known too.
    """
    every = tuple(packages)
    found = (
        *artifact_without_hash(every),
        *duplicate_package(every),
        *two_cuda_majors(every, facts, machine),
        *cuda_bindings_major(every, facts, machine),
        *other_cuda(every, cuda, facts, machine),
        *nvcc_minor(every, cuda),
        *cpu_torch_beside_cuda(every, facts, machine),
        *torch_family(every),
        *engine_torch(every, facts, machine),
        *built_for_another_torch(every),
        *flashinfer_versions(every),
        *wrong_project(every),
        *wheel_for_another_python(every, python),
        *path_clash(every),
        *requirement_broken(every, python, machine),
    )
    order = list(RULES)
    return tuple(sorted(found, key=lambda it: (order.index(it.rule), it.packages)))


def without_allowed(
    found: Sequence[Incoherence], allowed: Collection[str]
) -> tuple[tuple[Incoherence, ...], tuple[Incoherence, ...]]:
    """Split into what is refused and what was allowed by name."""
    refused = tuple(it for it in found if it.rule not in allowed)
    return refused, tuple(it for it in found if it.rule in allowed)


def unknown_rules(allowed: Collection[str]) -> tuple[str, ...]:
    """Return the names among `allowed` that no rule has."""
    return tuple(sorted(set(allowed) - set(RULES)))
