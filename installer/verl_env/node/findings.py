"""What is wrong with a node's driver, judged from what each part answered. Pure: no probing here.

One cause gives one finding: the rules stand in the order in which causes explain symptoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.node.answers import version_in_name
from verl_env.node.facts import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.node.answers import LibraryAnswer, SmiAnswer
    from verl_env.node.facts import Driver, Libcuda, Named, Value

NVML_NO_PERMISSION, NVML_DRIVER_NOT_LOADED, NVML_MISMATCH, NVML_UNKNOWN = 4, 9, 18, 999
CUDA_DRIVER_MISMATCH = 803


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the rules look at; `files` are device files, `strays` driver libraries off the path."""

    kernel: Driver | None
    nvml: LibraryAnswer
    cuda: LibraryAnswer
    libcuda: Libcuda | None
    smi: SmiAnswer | None
    device: Value | None
    files: tuple[str, ...] = ()
    container: Named | None = None
    wsl: bool = False
    visible_devices: str | None = None
    strays: tuple[str, ...] = ()

    @property
    def in_sight(self) -> bool:
        """Whether there is NVIDIA hardware or a loaded driver, so that a silent library is a fault."""
        return self.device is not None or self.kernel is not None

    @property
    def loaded(self) -> str:
        """Name the driver in use and where it was seen; nothing when there is none."""
        if self.kernel:
            return f"kernel driver {self.kernel.version} ({self.kernel.source})"
        return f"Windows' driver ({self.device.source})" if self.wsl and self.device else ""

    @property
    def severity(self) -> str:
        """Return how bad a broken library is: without any hardware nobody would have used it."""
        return "error" if self.in_sight else "warning"


def judge_driver(seen: Evidence) -> Iterator[Finding]:
    """Yield what is wrong with kernel driver, device files and NVML."""
    first = _not_loaded(seen) or _no_device_files(seen) or _mismatch(seen)
    if first:
        yield first
        if first.id != "driver-library-mismatch":
            return
    nvml = _nvml_fault(seen) or (None if first else _nvml_code(seen)) or _nvml_missing(seen)
    if nvml:
        yield nvml
    elif seen.smi and seen.smi.late:
        yield _smi_late(seen.smi)
    if seen.nvml.gpu_errors:
        yield Finding(
            id="gpu-unreadable",
            severity="error",
            what="a GPU does not answer",
            evidence="; ".join(seen.nvml.gpu_errors),
            why="a GPU that fell off the bus or wants a reset stops every job that touches it",
            action="look for `NVRM: Xid` in the kernel log (dmesg), and have the node drained and rebooted",
        )


def _not_loaded(seen: Evidence) -> Finding | None:
    """Find hardware without a kernel driver."""
    if seen.device is None or seen.kernel or seen.nvml.works or seen.cuda.works or seen.wsl:
        return None
    return Finding(
        id="driver-not-loaded",
        severity="error",
        what="an NVIDIA GPU is here, and no kernel driver is loaded for it",
        evidence=f"{seen.device.value} ({seen.device.source}); no /sys/module/nvidia, no /proc/driver/nvidia",
        why="without the kernel driver nothing can use the GPU",
        action="have NVIDIA's driver installed and loaded; `sudo modprobe nvidia` says what is wrong",
    )


def _no_device_files(seen: Evidence) -> Finding | None:
    """Find a loaded driver whose device files are not visible here."""
    if seen.kernel is None or seen.files or seen.nvml.works or seen.cuda.works or seen.wsl:
        return None
    action = "have an administrator run `nvidia-modprobe -c 0 -u`, which makes them"
    where = "no /dev/nvidia0"
    if seen.container:
        where = f"no /dev/nvidia0 in this {seen.container.name} container"
        action = "start it with its GPUs: Docker `--gpus all`, Apptainer `--nv`, Kubernetes `nvidia.com/gpu`"
    return Finding(
        id="gpu-not-in-container" if seen.container else "device-files-missing",
        severity="error",
        what=f"the kernel has driver {seen.kernel.version}, and no /dev/nvidia* is visible here",
        evidence=f"{seen.kernel.source}; {where}",
        why="programs reach a GPU through these files alone",
        action=action,
    )


def _mismatch(seen: Evidence) -> Finding | None:
    """Find kernel driver and user-space libraries of different versions."""
    signs = []
    kernel = seen.kernel.version if seen.kernel else None
    if seen.nvml.code == NVML_MISMATCH:
        signs.append(f"NVML: {seen.nvml.said}")
    if seen.smi and seen.smi.error and "version mismatch" in seen.smi.error.lower():
        signs.append(f"nvidia-smi: {seen.smi.error}")
    if seen.cuda.code == CUDA_DRIVER_MISMATCH and not (seen.libcuda and seen.libcuda.compat):
        signs.append(f"libcuda: {seen.cuda.said}")
    compat = seen.libcuda is not None and seen.libcuda.compat
    for answer, stem in ((seen.nvml, "libnvidia-ml.so"), (seen.cuda, "libcuda.so")):
        version = version_in_name(answer.path, stem)
        if kernel and version and version != kernel and not (answer is seen.cuda and compat):
            signs.append(f"{answer.path} is {version}")
    if not signs:
        return None
    loaded = f"kernel driver {kernel}" if kernel else "the kernel driver"
    return Finding(
        id="driver-library-mismatch",
        severity="error",
        what=f"{loaded} and the driver's libraries are of different versions",
        evidence="; ".join(signs),
        why="the libraries refuse a kernel driver of another version; an update leaves this until the reboot",
        action="restart the container, and if that does not help have the host rebooted"
        if seen.container
        else "reboot, or have the nvidia kernel modules unloaded and loaded again",
    )


def _nvml_fault(seen: Evidence) -> Finding | None:
    """Find an NVML that hangs, crashes or does not load."""
    if not seen.nvml.fault:
        return None
    return library_fault(seen.nvml, "nvml", seen.severity)


def library_fault(answer: LibraryAnswer, name: str, severity: str) -> Finding:
    """Say that a library hung, crashed or could not be loaded."""
    whats = {
        "hung": f"{answer.library} hangs",
        "crashed": f"{answer.library} crashes whoever asks it",
        "unloadable": f"{answer.library} is there and cannot be loaded",
    }
    actions = {
        "hung": "look for `NVRM: Xid` in the kernel log (dmesg), and have the node rebooted",
        "crashed": "have the driver's libraries installed again, at the version of the kernel driver",
        "unloadable": "let the first of that name on LD_LIBRARY_PATH be the driver's own",
    }
    return Finding(
        id=f"{name}-{answer.fault}",
        severity=severity,
        what=whats[answer.fault],
        evidence=f"{answer.path or answer.library}: {answer.said}",
        why="every CUDA program would meet the same",
        action=actions[answer.fault],
    )


def _nvml_code(seen: Evidence) -> Finding | None:
    """Find an NVML that answers with an error."""
    code = seen.nvml.code
    smi = seen.smi.error if seen.smi and seen.smi.error else ""
    if not code or (code == NVML_DRIVER_NOT_LOADED and not seen.in_sight):
        return None
    evidence = f"NVML: {seen.nvml.said} ({code})" + (f"; nvidia-smi: {smi}" if smi else "")
    if code == NVML_UNKNOWN and seen.container:
        return Finding(
            id="nvml-unknown-error",
            severity="error",
            what="this container has lost its access to the GPUs",
            evidence=evidence,
            why="`systemctl daemon-reload` on the host takes devices from running containers (cgroup v2)",
            action="restart the container; it stays away with `--device /dev/nvidia0` … or CDI",
        )
    if code == NVML_NO_PERMISSION:
        return Finding(
            id="nvml-no-permission",
            severity="error",
            what="this user may not open the GPUs",
            evidence=f"{evidence}; {', '.join(seen.files) or 'no /dev/nvidia*'}",
            why="programs reach a GPU through /dev/nvidia*",
            action="ask for access to /dev/nvidia* (often the group `video`), or for GPUs in the job",
        )
    return Finding(
        id="nvml-failed",
        severity=seen.severity,
        what="NVML does not answer",
        evidence=evidence,
        why="vLLM, Ray and torch ask NVML which GPUs there are",
        action="look for `NVRM` in the kernel log (dmesg), and have the node rebooted if it names a GPU",
    )


def _smi_late(smi: SmiAnswer) -> Finding:
    """Say that nvidia-smi hangs where nothing else says what is wrong."""
    return Finding(
        id="probe-timed-out",
        severity="warning",
        what="nvidia-smi did not come to its end in time",
        evidence=f"{smi.path}: {smi.error}",
        why="a driver that hangs nvidia-smi hangs whatever asks for GPUs; or this nvidia-smi is none of the driver's",
        action="`verl-env doctor --only node --deep` waits longer; see the kernel log (dmesg) for `NVRM`",
    )


def _nvml_missing(seen: Evidence) -> Finding | None:
    """Find a driver without its management library."""
    if seen.nvml.found or not seen.loaded:
        return None
    stray = next((path for path in seen.strays if "libnvidia-ml" in path), None)
    action = "have the driver's libnvidia-ml installed, of the kernel driver's version"
    if stray:
        action = f"add {stray.rpartition('/')[0]} to LD_LIBRARY_PATH"
    elif seen.container:
        action = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return Finding(
        id="nvml-missing",
        severity="warning",
        what="the driver is loaded, and its NVML library is not found",
        evidence=f"{seen.loaded}; {seen.nvml.said}",
        why="vLLM, Ray and torch ask NVML which GPUs there are",
        action=action,
    )
