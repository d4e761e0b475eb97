"""Kernel driver, libcuda, NVML and GPUs: who is believed for what, and what is wrong between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.node import devices, driver, nvidia_smi, system
from verl_env.node.facts import Driver, Finding, Gpu, GpuPair, Libcuda, Named, Nvml, Value
from verl_env.node.findings import Evidence, judge_driver
from verl_env.node.findings_cuda import judge_libcuda_faults
from verl_env.node.libcuda import judge_libcuda

if TYPE_CHECKING:
    from verl_env.node.answers import LibraryAnswer, SmiAnswer
    from verl_env.node.host import Host

# Where driver libraries are put without the loader being told.
_STRAY_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib64-nvidia", "/.singularity.d/libs")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStack:
    """The parts of a node that NVIDIA's software answers for."""

    driver: Driver | None
    driver_api: Value | None
    libcuda: Libcuda | None
    nvml: Nvml | None
    gpus: tuple[Gpu, ...]
    gpu_pairs: tuple[GpuPair, ...]
    nvidia_device: Value | None
    other_accelerators: tuple[Named, ...]
    container: Named | None
    wsl: Value | None
    findings: tuple[Finding, ...]


def assemble_stack(host: Host, nvml: LibraryAnswer, cuda: LibraryAnswer) -> DriverStack:
    """Believe NVML first, then nvidia-smi, then what the kernel shows; judge what disagrees."""
    pci = devices.list_pci(host)
    kernel = driver.read_driver(host)
    # nvidia-smi asks the same NVML: where that hangs, it would hang as long again.
    smi = None if nvml.works or nvml.fault == "hung" else nvidia_smi.ask_nvidia_smi(host)
    chosen = _choose_driver(nvml, smi, kernel)
    libcuda = judge_libcuda(cuda, chosen.version if chosen else None)
    container, wsl = system.find_container(host), system.find_wsl(host)
    seen = Evidence(
        kernel=kernel,
        nvml=nvml,
        cuda=cuda,
        libcuda=libcuda,
        smi=smi,
        device=devices.find_nvidia_device(host, pci),
        files=tuple(f"/dev/{path.name}" for path in host.glob("/dev", "nvidia*") if not path.is_dir()),
        container=container,
        wsl=wsl is not None,
        visible_devices=host.environ.get("CUDA_VISIBLE_DEVICES"),
        strays=_find_strays(host),
    )
    findings = tuple(judge_driver(seen))
    findings += tuple(judge_libcuda_faults(seen, tuple(finding.id for finding in findings)))
    return DriverStack(
        driver=chosen,
        driver_api=_choose_api(nvml, cuda, smi),
        libcuda=libcuda,
        nvml=_nvml_fact(nvml),
        gpus=nvml.gpus or (smi.gpus if smi else ()) or cuda.gpus or driver.list_kernel_gpus(host),
        gpu_pairs=nvml.pairs,
        nvidia_device=seen.device,
        other_accelerators=devices.find_other_accelerators(host, pci),
        container=container,
        wsl=wsl,
        findings=findings,
    )


def _choose_driver(nvml: LibraryAnswer, smi: SmiAnswer | None, kernel: Driver | None) -> Driver | None:
    """Return the driver's version from the first that knows it."""
    if nvml.driver_version:
        return Driver(version=nvml.driver_version, source="NVML")
    if smi and smi.driver_version:
        return Driver(version=smi.driver_version, source="nvidia-smi")
    return kernel


def _choose_api(nvml: LibraryAnswer, cuda: LibraryAnswer, smi: SmiAnswer | None) -> Value | None:
    """Return the CUDA driver API version; libcuda's own answer is the one that programs get."""
    if cuda.api_version:
        return Value(value=cuda.api_version, source="libcuda cuDriverGetVersion")
    if nvml.api_version:
        return Value(value=nvml.api_version, source="NVML")
    return Value(value=smi.cuda_version, source="nvidia-smi") if smi and smi.cuda_version else None


def _nvml_fact(answer: LibraryAnswer) -> Nvml | None:
    """Turn the answer into the fact."""
    if not answer.found:
        return None
    return Nvml(
        source=answer.path or "dlopen libnvidia-ml.so.1",
        version=answer.version,
        driver_version=answer.driver_version,
        error=answer.said or None,
    )


def _find_strays(host: Host) -> tuple[str, ...]:
    """Return driver libraries in folders that a loader may not know."""
    names = ("libcuda.so.1", "libnvidia-ml.so.1")
    return tuple(str(path) for folder in _STRAY_FOLDERS for name in names for path in host.glob(folder, name))
