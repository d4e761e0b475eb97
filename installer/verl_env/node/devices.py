"""Accelerators that the kernel shows, whether or not any driver answers for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.node.facts import Named, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.node.host import Host

_PCI = "/sys/bus/pci/devices"
_DISPLAY, _PROCESSING = "0x03", "0x12"
_NVIDIA, _AMD, _INTEL, _HABANA, _GOOGLE = "0x10de", "0x1002", "0x8086", "0x1da3", "0x1ae0"
# An AMD or Intel processor's own graphics is a display controller too, and says nothing about compute work.
_AMD_COMPUTE_CLASSES = ("0x12", "0x0380")
_INTEL_DATACENTER = ("0x0bd", "0x56c")


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """One device as sysfs shows it; all three are hexadecimal with `0x`."""

    address: str
    vendor: str
    device: str
    kind: str


def list_pci(host: Host) -> tuple[PciDevice, ...]:
    """Return what is on the PCI bus."""
    return tuple(
        PciDevice(address=folder.name, vendor=vendor, device=device, kind=kind)
        for folder in host.glob(_PCI, "*")
        for vendor, device, kind in [
            tuple((host.read(f"{_PCI}/{folder.name}/{name}") or "").strip() for name in ("vendor", "device", "class"))
        ]
    )


def find_nvidia_device(host: Host, pci: tuple[PciDevice, ...]) -> Value | None:
    """Return the NVIDIA hardware in sight: device files first, since they are what a program opens."""
    files = [path.name for path in host.glob("/dev", "nvidia[0-9]*")]
    if files:
        return Value(value=", ".join(f"/dev/{name}" for name in files), source="/dev")
    on_bus = [f"{one.address} {one.vendor[2:]}:{one.device[2:]}" for one in pci if is_nvidia_gpu(one)]
    if on_bus:
        return Value(value=", ".join(on_bus), source=_PCI)
    # Under WSL every vendor's GPU is /dev/dxg; Windows' NVIDIA driver brings its libcuda along.
    if host.path("/dev/dxg").exists() and host.glob("/usr/lib/wsl/lib", "libcuda.so*"):
        return Value(value="/dev/dxg", source="/usr/lib/wsl/lib/libcuda.so")
    return Value(value="/dev/nvidiactl", source="/dev") if host.path("/dev/nvidiactl").exists() else None


def is_nvidia_gpu(one: PciDevice) -> bool:
    """Whether it is a GPU and not NVIDIA's audio, USB or NVSwitch."""
    return one.vendor == _NVIDIA and one.kind.startswith(_DISPLAY)


def find_other_accelerators(host: Host, pci: tuple[PciDevice, ...]) -> tuple[Named, ...]:
    """Return other vendors' accelerators, one entry a vendor."""
    found = [*_by_files(host), *_by_pci(pci)]
    return tuple({named.name: named for named in reversed(found)}.values())[::-1]


def _by_files(host: Host) -> Iterator[Named]:
    """Yield what has device files of its own."""
    for node in host.glob("/sys/class/kfd/kfd/topology/nodes", "*/gpu_id"):
        # A processor is a node of this topology too; its gpu_id is 0.
        if host.path("/dev/kfd").exists() and node.read_text(encoding="ascii", errors="replace").strip() != "0":
            yield Named(name="AMD GPU", source="/dev/kfd")
    for name, pattern in (
        ("Huawei Ascend", "davinci[0-9]*"),
        ("Habana Gaudi", "hl[0-9]*"),
        ("AWS Neuron", "neuron[0-9]*"),
    ):
        for path in host.glob("/dev", pattern):
            yield Named(name=name, source=f"/dev/{path.name}")


def _by_pci(pci: tuple[PciDevice, ...]) -> Iterator[Named]:
    """Yield what is on the bus, with or without a driver."""
    for one in pci:
        source = f"{_PCI}/{one.address}"
        if one.vendor == _AMD and one.kind.startswith(_AMD_COMPUTE_CLASSES):
            yield Named(name="AMD GPU", source=source)
        elif one.vendor == _HABANA and one.kind.startswith(_PROCESSING):
            yield Named(name="Habana Gaudi", source=source)
        elif one.vendor == _GOOGLE and one.kind.startswith(_PROCESSING):
            yield Named(name="Google TPU", source=source)
        elif one.vendor == _INTEL and one.device.startswith(_INTEL_DATACENTER) and one.kind.startswith(_DISPLAY):
            yield Named(name="Intel GPU", source=source)
