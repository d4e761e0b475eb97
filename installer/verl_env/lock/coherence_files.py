"""Rules about artifacts: hashes, tags, origins and the paths they write. Pure."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from verl_env.lock.coherence_cuda import version_of
from verl_env.lock.package import Incoherence, Package

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names under which the Python package index has another project than the one that people mean. Read from the
# index's own metadata (2026-11-30): apex 0.9.10.dev0 is a Pyramid toolkit (NVIDIA's is 0.1 and not there),
# mooncake 0.0.1 is about spoken language (the transfer engine is mooncake-transfer-engine).
_OTHERS = {
    "apex": (re.compile(r"0\.9\."), "a web toolkit", "build NVIDIA's apex from its repository, or leave it out"),
    "mooncake": (re.compile(r"0\.0\.1"), "a spoken-language library", "write mooncake-transfer-engine"),
}
# Empty releases that only hold a name: nvidia-cuda-nvcc-cu13 0.0.1, pytorch-triton 0.0.1.
_PLACEHOLDER = re.compile(r"0\.0\.(0|1)(\.dev[0-9]+)?")
_HELD_NAMES = re.compile(r"nvidia-.+|pytorch-triton|tensorrt.*")

# Packages that install the same module, whatever their versions; seen without opening a RECORD.
_SAME_MODULE = (
    ("triton", frozenset({"triton", "pytorch-triton", "triton-nightly"})),
    ("cv2", frozenset({"opencv-python", "opencv-python-headless", "opencv-contrib-python",
                       "opencv-contrib-python-headless"})),
    ("sgl_kernel", frozenset({"sgl-kernel", "sglang-kernel"})),
    ("flash_attn/cute", frozenset({"flash-attn", "flash-attn-4"})),
)  # fmt: skip


def artifact_without_hash(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """Find files without a hash: they can be others tomorrow."""
    for package in packages:
        if package.hashed is False:
            yield Incoherence(
                rule="artifact-without-hash",
                what=f"{package.label} has no sha256" + (f" ({package.files[0]})" if package.files else ""),
                packages=(package.name,),
                why="nothing says that the file fetched tomorrow is the one that was proved",
                remedy=f"lock {package.name} from an index that states hashes, or by a git commit",
            )


def duplicate_package(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """One environment holds one version of a package."""
    versions: dict[str, set[str]] = {}
    for package in packages:
        if package.version:
            parsed = version_of(package)
            versions.setdefault(package.name, set()).add(str(parsed) if parsed else package.version)
    for name, found in sorted(versions.items()):
        if len(found) > 1:
            yield Incoherence(
                rule="duplicate-package",
                what=f"{name} is there as {' and as '.join(sorted(found))}",
                packages=(name,),
                why="files of two versions lie over one another; which one is imported depends on the order",
                remedy=f"keep one {name}; in an environment: remove it until none is left, then install one",
            )


def wrong_project(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """Find names under which an index serves another project."""
    for package in packages:
        version = package.version or ""
        pattern, is_what, remedy = _OTHERS.get(package.name, (None, "", ""))
        if pattern and pattern.match(version):
            yield _wrong(package, f"{package.label} on the default index is {is_what}", remedy)
        elif pattern and package.source == "default" and package.name == "apex":
            yield _wrong(package, f"{package.name} on the default index is {is_what}", remedy)
        elif _HELD_NAMES.fullmatch(package.name) and _PLACEHOLDER.fullmatch(version):
            yield _wrong(package, f"{package.label} is an empty release that only holds the name",
                         "name the index that has the real one, or leave it out")  # fmt: skip


def _wrong(package: Package, what: str, remedy: str) -> Incoherence:
    return Incoherence(
        rule="wrong-project",
        what=what,
        packages=(package.name,),
        why="the module that the code imports is not in it",
        remedy=remedy,
    )


def wheel_for_another_python(packages: tuple[Package, ...], python: str | None) -> Iterator[Incoherence]:
    """Find wheels of another Python: an extension for cp310 does not load in 3.12."""
    if python is None:
        return
    for package in packages:
        wheels = [file for file in package.files if file.endswith(".whl")]
        if wheels and len(wheels) == len(package.files) and not any(_suits(file, python) for file in wheels):
            yield Incoherence(
                rule="wheel-for-another-python",
                what=f"{wheels[0]} is not for Python {python}",
                packages=(package.name,),
                why="installers refuse it, and if it is forced its modules are not found",
                remedy=f"take the cp{python.replace('.', '')} wheel of {package.label}",
            )


def _suits(file: str, python: str) -> bool:
    """Whether a wheel's interpreter tag admits this CPython: its own, a generic one, or an older abi3."""
    try:
        _, _, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return True  # another rule's matter
    major, minor = (int(part) for part in python.split(".")[:2])
    for tag in tags:
        if tag.interpreter in (f"cp{major}{minor}", f"py{major}", f"py{major}{minor}"):
            return True
        old = re.fullmatch(r"(cp|py)3([0-9]+)", tag.interpreter)
        if old and int(old[2]) <= minor and (tag.abi == "abi3" or old[1] == "py"):
            return True
    return False


def path_clash(packages: tuple[Package, ...]) -> Iterator[Incoherence]:
    """Judge on contents where they are known: eleven cu12 wheels share an identical nvidia/__init__.py."""
    known = {it.name for it in packages if it.contents is not None}
    yield from _clashing_contents([it for it in packages if it.contents is not None])
    names = {it.name for it in packages}
    for module, members in _SAME_MODULE:
        here = sorted(members & names)
        if len(here) > 1 and not set(here) <= known:
            yield _clash(here[0], here[1:], f"both install `{module}`")


def _clashing_contents(packages: list[Package]) -> Iterator[Incoherence]:
    """Find the paths that two RECORDs give different hashes, a pair of packages at a time."""
    owners: dict[str, list[Package]] = {}
    for package in packages:
        for path in package.contents or ():
            owners.setdefault(path, []).append(package)
    clashes: dict[tuple[str, str], list[str]] = {}
    for path, members in owners.items():
        for one, other in combinations(members, 2):
            if one.name != other.name and (one.contents or {})[path] != (other.contents or {})[path]:
                first, second = sorted((one.name, other.name))
                clashes.setdefault((first, second), []).append(path)
    for (first, second), paths in sorted(clashes.items()):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield _clash(first, [second], f"both write `{min(paths)}`{more}, with different contents")


def _clash(first: str, others: list[str], how: str) -> Incoherence:
    return Incoherence(
        rule="path-clash",
        what=f"{first} and {', '.join(others)}: {how}",
        packages=(first, *others),
        why="the one that is installed last wins, and removing either breaks the other",
        remedy=f"keep one of {first}, {', '.join(others)}",
    )
