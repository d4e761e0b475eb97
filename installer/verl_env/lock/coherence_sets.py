"""Rules about sets of packages that are released together. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_env.lock.coherence_cuda import build_of, version_of
from verl_env.lock.engine_torch import torch_of
from verl_env.lock.package import Incoherence, Package
from verl_env.lock.torch_family import torch_for, torchvision_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.matrix.facts import Facts

_FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
_ENGINES = ("vllm", "sglang", "sgl-kernel", "sglang-kernel", "xformers")
# +cu124torch2.4, +cu12torch2.6cxx11abifalse, +pt2.6
_TORCH_IN_LABEL = re.compile(r"(?:torch|pt)([0-9])\.?([0-9]{1,2})")
_OLD_ABI = re.compile(r"cxx11abifalse")
_NEW_ABI_SINCE = Version("2.7")  # PyTorch 2.7 release notes: all Linux wheels use the C++11 ABI


def _named(packages: tuple[Package, ...]) -> dict[str, Package]:
    return {it.name: it for it in packages}


def torch_family(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """Compare torchvision's and torchaudio's own torch, and the CUDA of their builds, with torch."""
    named = _named(packages)
    torch = named.get("torch")
    own = version_of(torch) if torch else None
    if torch is None or own is None:
        return
    for name in ("torchvision", "torchaudio"):
        other = named.get(name)
        version = version_of(other) if other else None
        if other is None or version is None:
            continue
        wanted = torch_for(name, version.release)
        if (own.dev is None) != (version.dev is None) or (own.dev is not None and own.dev != version.dev):
            yield _not_of_one_release(torch, other, "nightlies of different days" if own.dev else "one is a nightly")
        elif own.dev is None and wanted is not None and not wanted.contains(own.public, prereleases=True):
            yield _not_of_one_release(torch, other, f"{other.label} was built for torch {wanted}")
        elif own.local and version.local and own.local != version.local:
            yield _not_of_one_release(torch, other, "builds for different CUDA")


def _not_of_one_release(torch: Package, other: Package, how: str) -> Incoherence:
    return Incoherence(
        rule="torch-family",
        what=f"{torch.label} and {other.label}: {how}",
        packages=("torch", other.name),
        why="its operators are compiled against one torch: `operator torchvision::nms does not exist`, or an "
        "undefined symbol at import",
        remedy=_partner(torch, other.name),
    )


def _partner(torch: Package, name: str) -> str:
    """Name the release that goes with this torch."""
    version = version_of(torch)
    if version is None or version.dev is not None:
        return f"install {name} together with torch, from the same index"
    label = f"+{version.local}" if version.local else ""
    if name == "torchvision":
        minor = torchvision_for(f"{version.major}.{version.minor}")
        return f"write torchvision=={minor}.{version.micro}{label}" if minor else "install it together with torch"
    if version.release[:2] > (2, 11):
        return "write torchaudio>=2.11"
    return f"write torchaudio=={version.base_version}{label}"


def flashinfer_versions(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """Compare the three parts, as they do themselves at import."""
    found = [(it, version) for it in packages if it.name in _FLASHINFER and (version := version_of(it))]
    if len({version.public for _, version in found}) < 2:  # noqa: PLR2004 - two are one too many
        return
    lead = next((it for it in found if it[0].name == "flashinfer-python"), found[0])
    yield Incoherence(
        rule="flashinfer-versions",
        what=" and ".join(it.label for it, _ in found),
        packages=tuple(it.name for it, _ in found),
        why="flashinfer compares these versions when it is imported, and stops",
        remedy=", ".join(f"{it.name}=={lead[1].public}" for it, _ in found if it is not lead[0]),
    )


def engine_torch(packages: tuple[Package, ...], facts: Facts | None, machine: str) -> Iterator[Incoherence]:
    """Compare each engine's own torch with the set's: its wheel is compiled against one release."""
    named = _named(packages)
    torch = named.get("torch")
    own = version_of(torch) if torch else None
    if torch is None or own is None:
        return
    for engine in (named[name] for name in _ENGINES if name in named):
        wanted, how = _torch_wanted(engine, facts, machine)
        if wanted is None or _admits(wanted, own):
            continue
        yield Incoherence(
            rule="engine-torch",
            what=f"{engine.label} beside {torch.label}",
            packages=(engine.name, "torch"),
            why=f"{engine.label} is built for torch {wanted} ({how}): its extension does not load with another "
            "(undefined symbol)",
            remedy=f"write torch{wanted}, or take the {engine.name} that was built for torch {own.public}",
        )


def _torch_wanted(engine: Package, facts: Facts | None, machine: str) -> tuple[str | None, str]:
    """Return the torch that an engine asks for, as a specifier, and who says so."""
    for line in engine.requires or ():
        try:
            wish = Requirement(line)
        except InvalidRequirement:
            continue
        unconditional = wish.marker is None or "extra" not in str(wish.marker)
        if canonicalize_name(wish.name) == "torch" and len(wish.specifier) and unconditional:
            return str(wish.specifier), "its metadata"
    build = build_of(engine, facts, machine)
    if build and build.torch:
        return f"=={build.torch}", "its wheel"
    version = version_of(engine)
    pinned = torch_of(engine.name, version) if version else None
    return (f"=={pinned}", "the metadata of that release") if pinned else (None, "")


def _admits(wanted: str, torch: Version) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(wanted).contains(torch.public, prereleases=True)
    except InvalidSpecifier:
        return True


def built_for_another_torch(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """flash-attn, old flashinfer and others write their torch (and C++ ABI) into the version."""
    torch = _named(packages).get("torch")
    own = version_of(torch) if torch else None
    if torch is None or own is None:
        return
    for package in packages:
        version = version_of(package)
        label = version.local if version and package is not torch else None
        said = _TORCH_IN_LABEL.search(label or "")
        minor = f"{said[1]}.{said[2]}" if said else None
        if minor and minor != f"{own.major}.{own.minor}":
            yield _extension(package, torch, f"its version says torch {minor}")
        elif label and _OLD_ABI.search(label) and own >= _NEW_ABI_SINCE:
            yield _extension(package, torch, "it uses the old C++ ABI, and torch since 2.7 the new one")


def _extension(package: Package, torch: Package, how: str) -> Incoherence:
    return Incoherence(
        rule="built-for-another-torch",
        what=f"{package.label} beside {torch.label}: {how}",
        packages=(package.name, "torch"),
        why="a C++ extension loads only into the torch it was compiled against: undefined symbol at import",
        remedy=f"take the wheel of {package.name} for torch {'.'.join((torch.version or '').split('.')[:2])}, "
        "or build it here",
    )


def requirement_broken(packages: tuple[Package, ...], python: str | None, machine: str) -> Iterator[Incoherence]:
    """Hold each package's own Requires-Dist against the set, where the list has them."""
    named = _named(packages)
    for package in packages:
        for line in package.requires or ():
            if fault := _unmet(line, named, python, machine):
                yield Incoherence(
                    rule="requirement-broken",
                    what=f"{package.label} wants {fault[0]}, and the set has {fault[1]}",
                    packages=(package.name, fault[2]),
                    why="its authors excluded this version; what breaks shows only in use",
                    remedy=f"write {fault[0]}, or --allow requirement-broken when a row overrides it",
                )


def _unmet(line: str, named: dict[str, Package], python: str | None, machine: str) -> tuple[str, str, str] | None:
    """Return (wish, what is there, name) when a requirement that applies here is not met."""
    try:
        wish = Requirement(line)
        applies = wish.marker is None or wish.marker.evaluate(_environment(python, machine))
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    name = canonicalize_name(wish.name)
    if not applies or name == "torch":  # torch has rules of its own
        return None
    there = named.get(name)
    version = version_of(there) if there else None
    if there is None:
        return f"{name}{wish.specifier}", "none", name
    if version is None or wish.specifier.contains(version, prereleases=True):
        return None
    return f"{name}{wish.specifier}", there.label, name


def _environment(python: str | None, machine: str) -> dict[str, str]:
    """Describe the target to markers (PEP 508), without an extra."""
    minor = python or "3.12"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_system": "Linux",
        "platform_python_implementation": "CPython",
        "python_full_version": f"{minor}.0",
        "python_version": minor,
        "sys_platform": "linux",
    }
