"""What is wrong with the libcuda a program would load, judged from its answers. Pure, as `findings` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.node.facts import Finding
from verl_env.node.findings import CUDA_DRIVER_MISMATCH, library_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.node.findings import Evidence

_STUB, _UNAVAILABLE, _NO_DEVICE = 34, 46, 100
_NOT_READY, _COMPAT_UNSUPPORTED, _UNKNOWN = 802, 804, 999

# code -> id, what, why, action
_BY_CODE = {
    _STUB: (
        "libcuda-stub",
        "a stub libcuda is loaded in place of the driver's",
        "a toolkit's `stubs` folder is for linking only: every CUDA call through it fails",
        "take the `stubs` folder off LD_LIBRARY_PATH",
    ),
    _UNAVAILABLE: (
        "cuda-device-unavailable",
        "CUDA finds its devices taken",
        "in exclusive compute mode one process holds a GPU alone",
        "see who holds the GPU (`nvidia-smi`), or have its compute mode set to Default",
    ),
    _NOT_READY: (
        "fabric-manager",
        "the GPUs wait for NVIDIA's fabric manager",
        "with NVSwitch, CUDA starts only once the fabric manager, of exactly the driver's version, is up",
        "have `nvidia-fabricmanager` installed at the driver's version and started",
    ),
    CUDA_DRIVER_MISMATCH: (
        "compat-driver-mismatch",
        "the compat libcuda does not go with the loaded kernel driver",
        "a compat libcuda works only with the driver branches it was made for, and never with a newer one",
        "take the compat folder off LD_LIBRARY_PATH, or use the cuda-compat package for this driver's branch",
    ),
    _COMPAT_UNSUPPORTED: (
        "compat-unsupported",
        "the compat libcuda does not support these GPUs",
        "forward compatibility is for datacenter GPUs only",
        "take the compat folder off LD_LIBRARY_PATH",
    ),
    _UNKNOWN: (
        "cuda-unknown-error",
        "CUDA does not start (unknown error)",
        "most often /dev/nvidia-uvm is missing or not allowed here, or the nvidia_uvm module is stuck",
        "have `nvidia-modprobe -u -c 0` run on the host, then start the container or session again",
    ),
}


def judge_libcuda_faults(seen: Evidence, earlier: tuple[str, ...]) -> Iterator[Finding]:
    """Yield what is wrong with libcuda, unless an earlier finding (its id) already explains it."""
    if {"driver-not-loaded", "gpu-not-in-container", "device-files-missing"} & set(earlier):
        return
    if seen.cuda.fault:
        yield library_fault(seen.cuda, "libcuda", seen.severity)
    elif not seen.cuda.found:
        yield from _missing(seen)
    elif seen.cuda.code:
        yield from _code(seen, earlier)


def _missing(seen: Evidence) -> Iterator[Finding]:
    """Find a driver without libcuda."""
    if not seen.loaded:
        return
    stray = next((path for path in seen.strays if "libcuda" in path), None)
    action = "have the driver's libcuda installed (libnvidia-compute, or cuda-drivers, of the driver's version)"
    if stray:
        action = f"add {stray.rpartition('/')[0]} to LD_LIBRARY_PATH"
    elif seen.container:
        action = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    yield Finding(
        id="libcuda-missing",
        severity="error",
        what="the driver is loaded, and no program here would find its libcuda",
        evidence=f"{seen.loaded}; {seen.cuda.said}",
        why="every CUDA program begins by loading libcuda.so.1",
        action=action,
    )


def _code(seen: Evidence, earlier: tuple[str, ...]) -> Iterator[Finding]:
    """Find a libcuda whose cuInit failed."""
    code = seen.cuda.code
    explained = {"driver-library-mismatch", "nvml-unknown-error", "nvml-no-permission"} & set(earlier)
    if explained and code in {_NO_DEVICE, CUDA_DRIVER_MISMATCH, _UNKNOWN}:
        return
    evidence = f"{seen.cuda.path}: {seen.cuda.said}"
    if code == _NO_DEVICE:
        yield from _no_device(seen, evidence)
    elif code in _BY_CODE:
        name, what, why, action = _BY_CODE[code]
        if code == _UNKNOWN:
            evidence += "; /dev/nvidia-uvm is " + ("there" if "/dev/nvidia-uvm" in seen.files else "not there")
        yield Finding(id=name, severity=seen.severity, what=what, evidence=evidence, why=why, action=action)
    elif seen.in_sight:
        yield Finding(
            id="cuda-failed",
            severity="error",
            what="CUDA does not start",
            evidence=evidence,
            why="every CUDA program would meet the same",
            action="look for `NVRM` in the kernel log (dmesg)",
        )


def _no_device(seen: Evidence, evidence: str) -> Iterator[Finding]:
    """Find out why CUDA has no device: hidden on purpose, broken, or there simply is none."""
    hidden = seen.visible_devices is not None and not seen.visible_devices.strip().removeprefix("-1")
    if hidden and seen.in_sight:
        yield Finding(
            id="gpus-hidden",
            severity="warning",
            what="CUDA_VISIBLE_DEVICES hides every GPU",
            evidence=f"CUDA_VISIBLE_DEVICES=`{seen.visible_devices}`",
            why="CUDA programs started here see no GPU",
            action="unset CUDA_VISIBLE_DEVICES",
        )
    elif seen.in_sight:
        yield Finding(
            id="cuda-no-device",
            severity="error",
            what="CUDA sees no device",
            evidence=evidence
            + (f"; CUDA_VISIBLE_DEVICES=`{seen.visible_devices}`" if seen.visible_devices is not None else ""),
            why="every CUDA program would fall back to the CPU or stop",
            action="see that /dev/nvidia* are readable here and that `nvidia-smi` lists the GPUs",
        )
