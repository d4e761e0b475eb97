"""Rules about CUDA: which one each package is of, and whether they agree. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from verl_env.lock.package import Incoherence, Package
from verl_env.matrix.fit import COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.matrix.facts import BuildFacts, Facts

# nvidia-cudnn-cu12, cupy-cuda12x, vllm-nccl-cu12, nvidia-cutlass-dsl-libs-cu13, jax-cuda12-plugin
_IN_NAME = re.compile(r"-cu(?:da)?(1[0-9])(?:[0-9]|x)?(?:-|$)")
# +cu128, +cu124torch2.4, +cu12torch2.6cxx11abifalse, +g1a2b3c4.d20250319.cu128
_IN_LABEL = re.compile(r"(?:^|\.)cu(1[0-9])([0-9])?(?:torch|$|\.)")
# Their version is the toolkit's. Other parts of the toolkit (cuFFT, cuSOLVER …) have numbers of their own.
_NUMBERED_AS_TOOLKIT = frozenset({
    "cuda-bindings", "cuda-python", "cuda-toolkit", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-cupti",
    "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvjitlink", "nvidia-nvtx", "nvidia-nvvm",
})  # fmt: skip
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu[0-9]+)?")
# nvcc, its back end and the headers that it compiles; they are published apart and drift apart.
_COMPILER = re.compile(r"nvidia-(cuda-nvcc|cuda-crt|nvvm|cuda-cccl)(-cu[0-9]+)?")
# They open the CUDA libraries of their own major when they are first called, and link against none.
_BINDINGS = re.compile(r"cuda-bindings|cuda-python|nvidia-cutlass-dsl-libs-cu[0-9]+")
_CUDA_EXTENSIONS = ("vllm", "sglang", "sgl-kernel", "sglang-kernel", "flash-attn", "flashinfer-jit-cache", "xformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOf:
    """The CUDA a package is of: its major, its version when known, and how we know."""

    major: int
    version: str | None
    how: str


def version_of(package: Package) -> Version | None:
    """Parse a package's version; None when it has none or it is no PEP 440 version."""
    try:
        return Version(package.version) if package.version else None
    except InvalidVersion:
        return None


def build_of(package: Package, facts: Facts | None, machine: str) -> BuildFacts | None:
    """Return what the facts know of a compiled package's build."""
    if facts is None or package.name not in COMPILED or version_of(package) is None:
        return None
    return facts.build(package.name, package.version or "", machine=machine)


def cuda_of(package: Package, facts: Facts | None, machine: str) -> CudaOf | None:
    """Say which CUDA a package is of; None when nothing shows it, or it is of none."""
    version = version_of(package)
    if version and version.local and (label := _IN_LABEL.search(version.local)):
        minor = f"{label[1]}.{label[2]}" if label[2] else None
        return CudaOf(major=int(label[1]), version=minor, how="its version")
    if named := _IN_NAME.search(package.name):
        return CudaOf(major=int(named[1]), version=None, how="its name")
    if version and package.name in _NUMBERED_AS_TOOLKIT and version.major >= 11:  # noqa: PLR2004 - older: no wheels
        return CudaOf(major=version.major, version=f"{version.major}.{version.minor}", how="its version")
    build = build_of(package, facts, machine)
    if build and build.cuda:
        return CudaOf(major=Version(build.cuda).major, version=build.cuda, how=f"its wheel is built for {build.cuda}")
    return None


def _by_major(packages: tuple[Package, ...], facts: Facts | None, machine: str) -> dict[int, list[tuple[Package, str]]]:
    found: dict[int, list[tuple[Package, str]]] = {}
    for package in packages:
        if cuda := cuda_of(package, facts, machine):
            found.setdefault(cuda.major, []).append((package, cuda.how))
    return found


def _evidence(major: int, members: list[tuple[Package, str]]) -> str:
    """Name a few members, compiled ones before libraries, with how each is known."""
    ordered = sorted(members, key=lambda it: (it[0].name not in COMPILED, it[0].name))
    shown = ", ".join(f"{package.label} ({how})" for package, how in ordered[:4])
    return f"CUDA {major}: {shown}" + (f" and {len(members) - 4} more" if len(members) > 4 else "")  # noqa: PLR2004


def cuda_bindings_major(packages: tuple[Package, ...], facts: Facts | None, machine: str) -> Iterator[Incoherence]:
    """Compare Python bindings of CUDA with the one major that everything else is of."""
    rest = _by_major(tuple(it for it in packages if not _BINDINGS.fullmatch(it.name)), facts, machine)
    if len(rest) != 1:  # none, or another rule's matter
        return
    kept, names = next(iter(rest)), {it.name for it in packages}
    drifted = [
        it
        for it in packages
        if _BINDINGS.fullmatch(it.name)
        and (own := cuda_of(it, facts, machine))
        and own.major != kept
        # nvidia-cutlass-dsl brings its cu12 libraries always, and takes those of cu13 where they are.
        and _IN_NAME.sub(f"-cu{kept}", it.name) not in names - {it.name}
    ]
    if not drifted:
        return
    own_major = next(own.major for it in drifted if (own := cuda_of(it, facts, machine)))
    yield Incoherence(
        rule="cuda-bindings-major",
        what=f"{', '.join(it.label for it in drifted)} beside CUDA {kept}",
        packages=tuple(it.name for it in drifted),
        why=f"they open libraries of CUDA {own_major}, which are not in this set: what uses them fails at its first "
        "call, and nothing else does",
        remedy=" and ".join(
            f"write {it.name}<{kept + 1}"
            if it.name.startswith("cuda-") and own_major > kept
            else f"leave out {it.name}"
            for it in drifted
        ),
        evidence=(_evidence(kept, rest[kept]),),
    )


def two_cuda_majors(packages: tuple[Package, ...], facts: Facts | None, machine: str) -> Iterator[Incoherence]:
    """Find packages of two majors: one process loads one libcudart."""
    groups = _by_major(tuple(it for it in packages if not _BINDINGS.fullmatch(it.name)), facts, machine)
    if len(groups) < 2:  # noqa: PLR2004 - two are one too many
        return
    torch = next((major for major, group in groups.items() if any(it.name == "torch" for it, _ in group)), None)
    kept = torch or max(groups, key=lambda major: len(groups[major]))
    others = [it for major, group in groups.items() if major != kept for it, _ in group]
    yield Incoherence(
        rule="two-cuda-majors",
        what="packages of CUDA " + " and of CUDA ".join(str(major) for major in sorted(groups)),
        packages=tuple(sorted(it.name for it in others)),
        why="an extension of one major finds no libcudart of its own beside the other's, or loads both",
        remedy=_remedy(others, kept),
        evidence=tuple(_evidence(major, groups[major]) for major in sorted(groups)),
    )


def _remedy(others: list[Package], kept: int) -> str:
    """Say how to get to one major: a build of each other package for it."""
    suffixed = sorted(it.name for it in others if _IN_NAME.search(it.name))
    rest = sorted(it.label for it in others if not _IN_NAME.search(it.name))
    words = []
    if rest:
        words.append(f"take builds for CUDA {kept} of {', '.join(rest[:4])}")
    if suffixed:
        words.append(f"leave out {', '.join(suffixed[:4])}" + (" …" if len(suffixed) > 4 else ""))  # noqa: PLR2004
    return "; ".join(words) + ", or start from a row (verl-env lock)"


def other_cuda(
    packages: tuple[Package, ...], cuda: str | None, facts: Facts | None, machine: str
) -> Iterator[Incoherence]:
    """Compare the toolkit that the lock states with the major that all its packages agree on."""
    groups = _by_major(packages, facts, machine)
    if cuda is None or len(groups) != 1:
        return
    (major, members), stated = next(iter(groups.items())), Version(cuda).major
    if major == stated:
        return
    yield Incoherence(
        rule="other-cuda",
        what=f"the lock is for CUDA {cuda}, and its packages are of CUDA {major}",
        packages=tuple(sorted(it.name for it, _ in members)),
        why="the driver floor and the toolkit that the lock states would be wrong",
        remedy=f"take builds for CUDA {stated}, or a row for CUDA {major}",
        evidence=(_evidence(major, members),),
    )


def nvcc_minor(packages: tuple[Package, ...], cuda: str | None) -> Iterator[Incoherence]:
    """Code compiled at run time includes the runtime's headers, which refuse an nvcc of another minor."""
    runtime = next((it for it in packages if _RUNTIME.fullmatch(it.name) and version_of(it)), None)
    stated = version_of(runtime) if runtime else Version(cuda) if cuda else None
    if stated is None:
        return
    wanted = f"{stated.major}.{stated.minor}"
    drifted = [
        it
        for it in packages
        if _COMPILER.fullmatch(it.name)
        and (version := version_of(it))
        and version.major == stated.major
        and version.minor != stated.minor
    ]
    if not drifted:
        return
    yield Incoherence(
        rule="nvcc-minor",
        what=f"{', '.join(it.label for it in drifted)} beside " + (runtime.label if runtime else f"CUDA {cuda}"),
        packages=tuple(it.name for it in drifted),
        why="kernels compiled at run time take nvcc from one minor and the runtime's headers from another: "
        "they fail to compile, or the driver cannot load their PTX",
        remedy="constrain " + ", ".join(f"{it.name}=={wanted}.*" for it in drifted),
    )


def cpu_torch_beside_cuda(packages: tuple[Package, ...], facts: Facts | None, machine: str) -> Iterator[Incoherence]:
    """Find a CPU torch in a set for GPUs: a later install replaced it, and nothing finds a GPU."""
    torch = next((it for it in packages if it.name == "torch"), None)
    if torch is None:
        return
    version, build = version_of(torch), build_of(torch, facts, machine)
    if not ((version and version.local == "cpu") or (build and build.cpu)):
        return
    needing = [
        it
        for it in packages
        if it is not torch
        and (cuda_of(it, facts, machine) or it.name in _CUDA_EXTENSIONS)
        and not ((own := version_of(it)) and own.local == "cpu")
        and not _BINDINGS.fullmatch(it.name)  # torchcodec and others bring them; they load nothing by themselves
    ]
    if not needing:
        return
    names = [it.label for it in needing]
    yield Incoherence(
        rule="cpu-torch-beside-cuda",
        what=f"{torch.label} is a CPU build, beside {', '.join(names[:4])}"
        + (f" and {len(names) - 4} more" if len(names) > 4 else ""),  # noqa: PLR2004
        packages=("torch", *(it.name for it in needing)),
        why="torch.cuda is not there, and extensions built against a CUDA torch do not load",
        remedy="install torch from the index of its CUDA (pytorch-cuNNN) in the same step as the rest, "
        "or take a row for CPU work",
    )
