"""A row held against a node: native, minor-version, forward-compat or rejected, always with its reasons. Pure.

The three ways a driver carries a toolkit are kept apart, since peers blur them (NVIDIA, CUDA Compatibility):
*native*, the driver is at least the toolkit's own; *minor-version*, it is of the same CUDA major's line, above
the major's floor, and works but for PTX of newer minors; *forward-compat*, a cuda-compat libcuda is in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.facts import BuildFacts, Facts, ToolkitFacts, admits

if TYPE_CHECKING:
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import PinsHeader
    from verl_env.node.facts import Gpu, Node

NATIVE = "native"
MINOR_VERSION = "minor-version"
FORWARD_COMPAT = "forward-compat"
REJECTED = "rejected"
CPU = "cpu"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """How the node's driver carries a toolkit."""

    verdict: str
    reason: str = ""
    note: str = ""
    driver_needed: str | None = None


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
    carried = _carry(row.cuda, node, facts, for_cpu=for_cpu)
    if carried.reason:
        reasons.append(carried.reason)
    if carried.note:
        notes.append(carried.note)
    if row.cuda and not for_cpu:
        arch = machine or row.arch[0]
        _check_gpus(entry, node, facts, arch, carried.verdict == NATIVE, reasons, notes)
    return Fit(
        entry=entry,
        pins=pins,
        verdict=REJECTED if reasons else carried.verdict,
        reasons=tuple(reasons),
        notes=tuple(notes),
        driver_needed=carried.driver_needed,
    )


def driver_floor(cuda: str | None, facts: Facts) -> str | None:
    """Return the oldest driver that carries a toolkit without cuda-compat, or None when it is not known."""
    toolkit = facts.toolkit(cuda) if cuda else None
    return toolkit.minor_driver or toolkit.driver if toolkit else None


def _check_glibc(pins: PinsHeader | None, node: Node, reasons: list[str], notes: list[str]) -> None:
    """The floor comes from the platform tags of the wheels that were pinned."""
    if pins is None or pins.glibc is None:
        return
    if node.glibc is None:
        notes.append(f"needs glibc >= {pins.glibc}; this node's is not known")
    elif Version(node.glibc.value) < Version(pins.glibc):
        reasons.append(
            f"needs glibc >= {pins.glibc} (the platform tags of its wheels); this node has {node.glibc.value}"
        )


def _carry(cuda: str | None, node: Node, facts: Facts, *, for_cpu: bool) -> _Carried:
    """Decide how, if at all, the node's driver carries the row's CUDA."""
    if cuda is None:
        return (
            _Carried(verdict=CPU)
            if for_cpu
            else _Carried(verdict=REJECTED, reason="a CPU row; this node has a GPU or works for one")
        )
    if for_cpu:
        return _Carried(verdict=REJECTED, reason="needs an NVIDIA GPU")
    toolkit = facts.toolkit(cuda)
    if toolkit is None or toolkit.driver is None and toolkit.minor_driver is None:
        return _Carried(verdict=REJECTED, reason=f"the driver that CUDA {cuda} needs is not known")
    floor = toolkit.minor_driver or toolkit.driver
    libcuda = node.libcuda
    if libcuda and libcuda.compat and libcuda.works and libcuda.api_version:
        return _carry_by_compat(cuda, libcuda.api_version, floor)
    if libcuda and not libcuda.works and libcuda.error:
        return _Carried(
            verdict=REJECTED, reason=f"the CUDA driver does not start: {libcuda.error}", driver_needed=floor
        )
    if node.driver is None:
        return _Carried(
            verdict=REJECTED, reason=f"needs an NVIDIA driver >= {floor}; none is loaded", driver_needed=floor
        )
    return _carry_by_driver(toolkit, cuda, node.driver.version, node.gpus, facts)


def _carry_by_compat(cuda: str, api: str, floor: str | None) -> _Carried:
    """A cuda-compat libcuda that is in place and works decides by the CUDA version it answers."""
    if Version(api) >= Version(cuda):
        return _Carried(verdict=FORWARD_COMPAT, note=f"a cuda-compat libcuda is in place and answers CUDA {api}")
    if Version(api).major == Version(cuda).major:
        return _Carried(
            verdict=FORWARD_COMPAT,
            note=f"a cuda-compat libcuda answers CUDA {api}, below {cuda} of the same major: PTX of {cuda} does not compile",
        )
    return _Carried(
        verdict=REJECTED,
        reason=f"needs CUDA {cuda}; the cuda-compat libcuda in place answers {api}",
        driver_needed=floor,
    )


def _carry_by_driver(toolkit: ToolkitFacts, cuda: str, version: str, gpus: tuple[Gpu, ...], facts: Facts) -> _Carried:
    """Compare the kernel driver with the toolkit's own driver, then with its major's floor."""
    driver, floor = Version(version), toolkit.minor_driver or toolkit.driver or ""
    if toolkit.driver and driver >= Version(toolkit.driver):
        return _Carried(verdict=NATIVE)
    if toolkit.minor_driver and driver >= Version(toolkit.minor_driver):
        own = f"its own driver is {toolkit.driver}" if toolkit.driver else "its own driver is not known"
        return _Carried(
            verdict=MINOR_VERSION,
            note=f"CUDA {cuda} runs on driver {version} by minor-version compatibility ({own}): "
            "PTX of a newer minor does not compile",
        )
    own = f" ({toolkit.driver} for native)" if toolkit.driver and toolkit.driver != floor else ""
    reason = f"CUDA {cuda} needs driver >= {floor}{own}; this node has {version}"
    if _could_go_forward(toolkit, driver, gpus, facts):
        reason += (
            f"; cuda-compat-{cuda.replace('.', '-')} on its datacenter GPUs would do, if an administrator installs it"
        )
    return _Carried(verdict=REJECTED, reason=reason, driver_needed=floor)


def _could_go_forward(toolkit: ToolkitFacts, driver: Version, gpus: tuple[Gpu, ...], facts: Facts) -> bool:
    """Whether NVIDIA lists this driver branch for the toolkit's cuda-compat, and every GPU is of the right kind."""
    known = [facts.gpu(gpu.name) for gpu in gpus]
    return (
        str(driver.major) in (toolkit.forward_branches or ())
        and bool(known)
        and all(gpu is not None and gpu.datacenter for gpu in known)
    )


def _check_gpus(
    entry: Entry, node: Node, facts: Facts, arch: str, ptx_ok: bool, reasons: list[str], notes: list[str]
) -> None:
    """Every GPU's compute capability must be among those compiled into each package of the set."""
    if not node.gpus:
        notes.append("no GPU is named, so compiled architectures were not compared")
        return
    for name in (name for name in COMPILED if name in entry.row.set):
        build = facts.build(name, entry.row.set[name], machine=arch)
        if build is None or build.architectures is None:
            if name in ("torch", "vllm"):
                reasons.append(f"which architectures {name} {entry.row.set[name]} was compiled for is not known")
            continue
        for gpu in {gpu.compute_capability: gpu for gpu in node.gpus}.values():
            if fault := _gpu_fault(name, entry.row.set[name], build, gpu, ptx_ok):
                reasons.append(fault)


def _gpu_fault(name: str, version: str, build: BuildFacts, gpu: Gpu, ptx_ok: bool) -> str | None:
    """Return why this build does not run on this GPU, or None."""
    if gpu.compute_capability is None:
        return f"the compute capability of `{gpu.name}` is not known"
    if admits(build, gpu.compute_capability, ptx_ok=ptx_ok):
        return None
    compiled = " ".join(build.architectures or ())
    return (
        f"{name} {version} has no code for {gpu.name} (compute capability {gpu.compute_capability}; it has {compiled})"
    )
