"""A row held against a node: native, minor-version, forward-compat or rejected, always with its reasons. Pure.

How a driver carries a toolkit is support.py's; here it meets glibc, architecture, and what was compiled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.facts import BuildFacts, Facts, admits
from verl_env.matrix.generations import driver_fault
from verl_env.matrix.support import (
    CPU,
    FORWARD_COMPAT,
    MINOR_VERSION,
    NATIVE,
    REJECTED,
    carry,
    driver_floor,
)

if TYPE_CHECKING:
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import PinsHeader
    from verl_env.node.facts import Gpu, Node

__all__ = [
    "COMPILED",
    "CPU",
    "FORWARD_COMPAT",
    "MINOR_VERSION",
    "NATIVE",
    "REJECTED",
    "Fit",
    "driver_floor",
    "fit_row",
]

# The packages of a set whose device code must run on the node's GPUs, where the facts know their builds.
COMPILED = (
    "torch",
    "vllm",
    "sglang",
    "sglang-kernel",
    "sgl-kernel",
    "xformers",
    "flash-attn",
    "flashinfer-cubin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One row against one node. `reasons` say why it fell; `notes` what to know of one that fits.

    `pins` is the variant (Python and architecture) that was looked at; None when the row has none for the node.
    `short_by` orders rejected rows by how near they are: the number of reasons, then the driver that is missing.
    """

    entry: Entry
    verdict: str
    pins: PinsHeader | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    driver_needed: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the row runs on the node."""
        return self.verdict != REJECTED


def fit_row(entry: Entry, pins: PinsHeader | None, node: Node, facts: Facts, *, for_cpu: bool) -> Fit:
    """Hold one variant of a row against a node.

    `for_cpu` is whether the node's work is CPU work: then GPU rows fall, and otherwise CPU rows do.
    """
    reasons: list[str] = []
    notes: list[str] = []
    row = entry.row
    machine = node.machine.value if node.machine else None
    if row.broken:
        reasons.append(f"known broken: {row.broken}")
    if machine and machine not in row.arch:
        reasons.append(f"made for {' and '.join(row.arch)}; this node is {machine}")
    _check_glibc(pins, node, reasons, notes)
    carried = carry(row.cuda, node, facts, for_cpu=for_cpu)
    if carried.reason:
        reasons.append(carried.reason)
    if carried.note:
        notes.append(carried.note)
    if row.cuda and not for_cpu:
        arch = machine or row.arch[0]
        _check_gpus(entry, node, facts, arch, reasons, notes, ptx_ok=carried.ptx_ok)
    return Fit(
        entry=entry,
        pins=pins,
        verdict=REJECTED if reasons else carried.verdict,
        reasons=tuple(reasons),
        notes=tuple(notes),
        driver_needed=carried.driver_needed,
    )


def _check_glibc(pins: PinsHeader | None, node: Node, reasons: list[str], notes: list[str]) -> None:
    """Hold the node's glibc against the floor that the pinned wheels' platform tags ask for."""
    if pins is None or pins.glibc is None:
        return
    if node.glibc is None:
        notes.append(f"needs glibc >= {pins.glibc}; this node's is not known")
    elif Version(node.glibc.value) < Version(pins.glibc):
        reasons.append(
            f"needs glibc >= {pins.glibc} (the platform tags of its wheels); this node has {node.glibc.value}"
        )


def _check_gpus(
    entry: Entry, node: Node, facts: Facts, arch: str, reasons: list[str], notes: list[str], *, ptx_ok: bool
) -> None:
    """Look for every GPU's compute capability among those compiled into each package of the set."""
    if not node.gpus:
        notes.append("no GPU is named, so compiled architectures were not compared")
        return
    kinds = tuple({gpu.compute_capability: gpu for gpu in node.gpus}.values())
    if node.driver and not (node.libcuda and node.libcuda.compat):
        faults = (driver_fault(facts.generations, gpu, node.driver.version) for gpu in kinds)
        reasons.extend(fault for fault in faults if fault)
    for name in (name for name in COMPILED if name in entry.row.set):
        build = facts.build(name, entry.row.set[name], machine=arch)
        if build and build.cpu:
            reasons.append(f"{name} {entry.row.set[name]} is built without CUDA for {arch}")
            continue
        if build is None or build.architectures is None:
            if name in ("torch", "vllm"):
                reasons.append(f"which architectures {name} {entry.row.set[name]} was compiled for is not known")
            continue
        found = (_gpu_fault(name, entry.row.set[name], build, gpu, ptx_ok=ptx_ok) for gpu in kinds)
        reasons.extend(fault for fault in found if fault)


def _gpu_fault(name: str, version: str, build: BuildFacts, gpu: Gpu, *, ptx_ok: bool) -> str | None:
    """Return why this build does not run on this GPU, or None."""
    if gpu.compute_capability is None:
        return f"the compute capability of `{gpu.name}` is not known"
    if admits(build, gpu.compute_capability, ptx_ok=ptx_ok):
        return None
    compiled = " ".join(build.architectures or ())
    return (
        f"{name} {version} has no code for {gpu.name} (compute capability {gpu.compute_capability}; it has {compiled})"
    )
