"""Which drivers know a generation of GPUs at all: before any toolkit is asked about. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verl_env.node.facts import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFacts:
    """GPUs by compute capability, and the driver branches between which they are driven; None: no such end is known."""

    name: str
    compute_capabilities: tuple[str, ...]
    source: str
    first_branch: str | None = None
    last_branch: str | None = None


def driver_fault(generations: Iterable[GenerationFacts], gpu: Gpu, driver: str) -> str | None:
    """Return why a driver does not drive a GPU, or None; where nothing is known there is no fault."""
    branch = Version(driver).major
    for it in generations:
        if gpu.compute_capability not in it.compute_capabilities:
            continue
        what = f"driver {driver} does not drive {gpu.name} ({it.name}, compute capability {gpu.compute_capability})"
        if it.first_branch and branch < int(it.first_branch):
            return f"{what}: branch {it.first_branch} is the first that does"
        if it.last_branch and branch > int(it.last_branch):
            return f"{what}: branch {it.last_branch} is the last that does"
    return None
