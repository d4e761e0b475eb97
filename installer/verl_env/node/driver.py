"""The kernel driver as the kernel itself shows it; a library on disk says nothing about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from verl_env.node.facts import Driver, Gpu

if TYPE_CHECKING:
    from verl_env.node.host import Host

_SYS = "/sys/module/nvidia/version"
_PROC = "/proc/driver/nvidia/version"

# NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (…)
# NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
_NVRM = re.compile(r"^NVRM version:.*?\s(\d{3,4}(?:\.\d+){1,2})\s", re.MULTILINE)


def parse_nvrm(text: str) -> str | None:
    """Return the version in /proc/driver/nvidia/version, of the open or the proprietary kernel module."""
    found = _NVRM.search(text + "\n")
    return found[1] if found else None


def read_driver(host: Host) -> Driver | None:
    """Return the loaded kernel module's version, or None when none is loaded."""
    version = (host.read(_SYS) or "").strip()
    if version:
        return Driver(version=version, source=_SYS)
    version = parse_nvrm(host.read(_PROC) or "") or ""
    return Driver(version=version, source=_PROC) if version else None


def parse_gpu_information(text: str) -> tuple[str | None, str | None, str | None]:
    """Return model, UUID and bus location of a /proc/driver/nvidia/gpus/*/information file."""
    values = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
    said = {name.strip(): value.strip() for name, value in values.items()}
    uuid = said.get("GPU UUID")
    return said.get("Model") or None, None if uuid and "?" in uuid else uuid, said.get("Bus Location") or None


def list_kernel_gpus(host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs that the kernel driver lists: their names, when nothing else answers."""
    gpus = []
    for path in host.glob("/proc/driver/nvidia/gpus", "*/information"):
        try:
            model, uuid, bus = parse_gpu_information(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if model and model != "Unknown":
            gpus.append(Gpu(name=model, source="/proc/driver/nvidia/gpus", uuid=uuid, pci_bus_id=bus))
    return tuple(gpus)
