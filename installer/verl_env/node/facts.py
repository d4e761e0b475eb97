"""A node, as frozen values. `None` means not known; every part says where it was read (`source`).

Units are in the names. Versions are strings as their source writes them; compare them with packaging. A
compute capability is `"9.0"`, a CUDA driver API version or a toolkit `"13.0"`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The kernel driver: what is loaded, not what a library or nvidia-smi on disk was built with."""

    version: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Libcuda:
    """The libcuda.so.1 that a program started here would load.

    `compat` is true for one of a cuda-compat package (forward compatibility). `api_version` is the CUDA
    driver API version it answers, as `"13.0"`; `works` whether cuInit returned 0; `error` what it said
    otherwise.
    """

    path: str
    source: str
    version: str | None = None
    compat: bool = False
    api_version: str | None = None
    works: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    """NVIDIA's management library: `error` is set when it is there and does not answer."""

    source: str
    version: str | None = None
    driver_version: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. `mig` is `enabled`, `disabled` or None (not supported, or not known)."""

    name: str
    source: str
    index: int | None = None
    compute_capability: str | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    mig: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """Two GPUs by NVML's index: `path` as `nvidia-smi topo -m` writes it, `p2p_read` as `topo -p2p r` does."""

    one: int
    other: int
    path: str | None = None
    p2p_read: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A CUDA toolkit on disk; `version` is what its nvcc says, `"13.0.88"`, never its folder's name."""

    path: str
    source: str
    version: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python found on this node; `starts` is whether it ran, `error` what it said when it did not.

    `kind` is `uv`, `path`, `pyenv`, `system` or `conda`; `headers` whether Python.h is there (Triton and
    torch extensions compile against it).
    """

    path: str
    kind: str
    source: str
    version: str | None = None
    implementation: str | None = None
    machine: str | None = None
    starts: bool = False
    headers: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where something would be written; `network` is true for NFS, Lustre and their like."""

    role: str
    path: str
    source: str
    free_bytes: int | None = None
    free_inodes: int | None = None
    filesystem: str | None = None
    network: bool = False
    writable: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A thing that is there (container runtime, scheduler, other accelerator) and why we say so."""

    name: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One fact with its source."""

    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong: `what`, the `evidence` seen, `why` it matters, and the one `action` to take.

    `id` is stable, in kebab-case; `severity` is `error` (nothing on the GPU will run) or `warning`.
    """

    id: str
    severity: str
    what: str
    evidence: str
    why: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine. `described` is true when it was written down by someone rather than measured here.

    `nvidia_device` is set when NVIDIA hardware is in sight even if no driver answers for it. `driver_api` is
    the CUDA driver API version by the best source there is; `api_version` below what programs really get.
    """

    described: bool = False
    driver: Driver | None = None
    driver_api: Value | None = None
    libcuda: Libcuda | None = None
    nvml: Nvml | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_pairs: tuple[GpuPair, ...] = ()
    nvidia_device: Value | None = None
    toolkits: tuple[Toolkit, ...] = ()
    glibc: Value | None = None
    machine: Value | None = None
    cpu: Value | None = None
    distribution: Value | None = None
    kernel: Value | None = None
    container: Named | None = None
    wsl: Value | None = None
    scheduler: Named | None = None
    other_accelerators: tuple[Named, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    folders: tuple[Folder, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def api_version(self) -> str | None:
        """The CUDA driver API version that programs get, as `"13.0"`, or None when it is not known."""
        return self.libcuda.api_version if self.libcuda else None
