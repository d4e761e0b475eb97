"""What speaks against a wheel that somebody else compiled: its name, its label, and what it was compiled for. Pure.

Which libraries it is linked with, and which torch, is the loader's to say: builds/looking.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.facts import binary_runs
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.builds.inputs import Target
    from verl_env.builds.looking import Looked
    from verl_env.builds.wheel import WheelName
    from verl_env.matrix.builds import Build

_NEWEST_GLIBC = "2.99"  # for tags alone: which glibc it needs is read from its libraries
# How publishers write what a wheel was compiled against: `cu13torch2.10cxx11abiTRUE`, `cu130torch2.11`.
_CUDA, _TORCH = re.compile(r"cu(\d{2,3})(?!\d)"), re.compile(r"torch\.?(\d+\.\d+)")


def refusals(
    name: WheelName,
    looked: Looked,
    build: Build,
    target: Target,
    *,
    capabilities: tuple[str, ...],
    glibc: str | None,
) -> tuple[str, ...]:
    """Return everything that speaks against it; nothing when it may be tried."""
    found = [*_name_refusals(name, build, target), *_label_refusals(name, target)]
    if not looked.libraries:
        return (*found, "it has no compiled library")
    has = looked.architectures
    lacking = [it for it in capabilities if not any(binary_runs(arch, it) for arch in has)]
    if lacking:
        found.append(f"it has code for {', '.join(has) or 'no GPU'}, and not for {', '.join(lacking)}")
    if looked.glibc and glibc and Version(looked.glibc) > Version(glibc):
        found.append(f"it needs glibc {looked.glibc}, and this is {glibc}")
    return tuple(found)


def _name_refusals(name: WheelName, build: Build, target: Target) -> Iterator[str]:
    if (name.package, Version(name.version).public) != (build.package, build.version):
        yield f"it is {name.package} {name.version}, and the row names {build.package} {build.version}"
    if rank_of(name.file, supported_tags(target.python, target.machine, _NEWEST_GLIBC)) is None:
        yield f"its tags {name.tags} are not for Python {target.python} on {target.machine}"


def _label_refusals(name: WheelName, target: Target) -> Iterator[str]:
    """Hold what a label says against torch; what it does not say is found out by loading it."""
    label = Version(name.version).local or ""
    torch = ".".join(str(part) for part in Version(target.torch).release[:2])
    if (said := _TORCH.search(label)) and said[1] != torch:
        yield f"it was compiled for torch {said[1]}, and this is {target.torch}"
    digits = (target.cuda or "").replace(".", "")
    if (said := _CUDA.search(label)) and not digits.startswith(said[1]):
        yield f"it was compiled for CUDA {said[1]}, and torch here is built with {target.cuda}"
