"""How a node's driver carries a CUDA toolkit: natively, by minor version, by forward compatibility, or not. Pure.

The ways are kept apart, since peers blur them (NVIDIA, CUDA Compatibility): *native*, the driver is at least the
toolkit's own; *minor-version*, it is of the same CUDA major's line, above the major's floor, and works but for
PTX of newer minors; *forward-compat*, a cuda-compat libcuda is in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from verl_env.matrix.facts import Facts, ToolkitFacts
    from verl_env.node.facts import Gpu, Node

NATIVE = "native"
MINOR_VERSION = "minor-version"
FORWARD_COMPAT = "forward-compat"
REJECTED = "rejected"
CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How the node's driver carries a toolkit; `ptx_ok` is whether it can compile the toolkit's PTX."""

    verdict: str
    reason: str = ""
    note: str = ""
    driver_needed: str | None = None
    ptx_ok: bool = False


def driver_floor(cuda: str | None, facts: Facts) -> str | None:
    """Return the oldest driver that carries a toolkit without cuda-compat, or None when it is not known."""
    toolkit = facts.toolkit(cuda) if cuda else None
    return toolkit.minor_driver or toolkit.driver if toolkit else None


def carry(cuda: str | None, node: Node, facts: Facts, *, for_cpu: bool) -> Carried:
    """Decide how, if at all, the node's driver carries the row's CUDA."""
    if cuda is None and for_cpu:
        return Carried(verdict=CPU)
    if cuda is None:
        return Carried(verdict=REJECTED, reason="a CPU row; this node has a GPU or works for one")
    if for_cpu:
        return Carried(verdict=REJECTED, reason="needs an NVIDIA GPU")
    toolkit = facts.toolkit(cuda)
    floor = driver_floor(cuda, facts)
    if toolkit is None or floor is None:
        return Carried(verdict=REJECTED, reason=f"the driver that CUDA {cuda} needs is not known")
    return _carry_toolkit(toolkit, cuda, floor, node, facts)


def _carry_toolkit(toolkit: ToolkitFacts, cuda: str, floor: str, node: Node, facts: Facts) -> Carried:
    """Ask whatever answers for CUDA on this node: a compat libcuda, Windows, or the kernel driver."""
    libcuda = node.libcuda
    if libcuda and libcuda.compat and libcuda.works and libcuda.api_version:
        return _carry_by_compat(cuda, libcuda.api_version, floor)
    if libcuda and not libcuda.works and libcuda.error:
        return Carried(verdict=REJECTED, reason=f"the CUDA driver does not start: {libcuda.error}", driver_needed=floor)
    if node.driver is None:
        return Carried(
            verdict=REJECTED, reason=f"needs an NVIDIA driver >= {floor}; none is loaded", driver_needed=floor
        )
    if node.wsl and node.driver_api:
        return _carry_on_windows(cuda, node.driver_api.value, node.driver.version, floor)
    return _carry_by_driver(toolkit, cuda, node.driver.version, node.gpus, facts)


def _carry_by_compat(cuda: str, api: str, floor: str) -> Carried:
    """Let a cuda-compat libcuda that is in place and works decide, by the CUDA version it answers."""
    if Version(api) >= Version(cuda):
        note = f"a cuda-compat libcuda is in place and answers CUDA {api}"
        return Carried(verdict=FORWARD_COMPAT, note=note, ptx_ok=True)
    if Version(api).major == Version(cuda).major:
        return Carried(
            verdict=FORWARD_COMPAT,
            note=f"a cuda-compat libcuda answers CUDA {api}, below {cuda} of the same major: "
            f"PTX of {cuda} does not compile",
        )
    return Carried(
        verdict=REJECTED,
        reason=f"needs CUDA {cuda}; the cuda-compat libcuda in place answers {api}",
        driver_needed=floor,
    )


def _carry_on_windows(cuda: str, api: str, driver: str, floor: str) -> Carried:
    """Under WSL the driver is Windows', numbered by another table: the CUDA version that it answers decides."""
    if Version(api) >= Version(cuda):
        return Carried(verdict=NATIVE, ptx_ok=True)
    if Version(api).major == Version(cuda).major:
        return Carried(
            verdict=MINOR_VERSION,
            note=f"CUDA {cuda} runs on Windows' driver {driver}, which answers CUDA {api}, by minor-version "
            "compatibility: PTX of a newer minor does not compile",
        )
    reason = f"needs CUDA {cuda}; Windows' driver {driver} answers {api}"
    return Carried(verdict=REJECTED, reason=reason, driver_needed=floor)


def _carry_by_driver(toolkit: ToolkitFacts, cuda: str, version: str, gpus: tuple[Gpu, ...], facts: Facts) -> Carried:
    """Compare the kernel driver with the toolkit's own driver, then with its major's floor."""
    driver, floor = Version(version), toolkit.minor_driver or toolkit.driver or ""
    if toolkit.driver and driver >= Version(toolkit.driver):
        return Carried(verdict=NATIVE, ptx_ok=True)
    if toolkit.minor_driver and driver >= Version(toolkit.minor_driver):
        own = f"its own driver is {toolkit.driver}" if toolkit.driver else "its own driver is not known"
        return Carried(
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
    return Carried(verdict=REJECTED, reason=reason, driver_needed=floor)


def _could_go_forward(toolkit: ToolkitFacts, driver: Version, gpus: tuple[Gpu, ...], facts: Facts) -> bool:
    """Whether NVIDIA lists this driver branch for the toolkit's cuda-compat, and every GPU is of the right kind."""
    known = [facts.gpu(gpu.name) for gpu in gpus]
    return (
        str(driver.major) in (toolkit.forward_branches or ())
        and bool(known)
        and all(gpu is not None and gpu.datacenter for gpu in known)
    )
