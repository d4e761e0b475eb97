"""NVML, asked in a child process: the library of a broken driver can hang or crash whoever loads it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.node.answers import (
    LibraryAnswer,
    dotted_api,
    find_fault,
    is_absent,
    merge_lines,
    version_in_name,
)
from verl_env.node.facts import Gpu, GpuPair

if TYPE_CHECKING:
    from verl_env.node.host import Host

NAME = "libnvidia-ml.so.1"


def ask_nvml(host: Host) -> LibraryAnswer:
    """Return what NVML says, or how it failed."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return LibraryAnswer(library="NVML", found=False, said="the package nvidia-ml-py is not installed")
    child = Path(__file__).with_name("nvml_child.py")
    done = host.run([sys.executable, "-I", "-S", child, Path(spec.origin).parent])
    said = merge_lines(done.stdout)
    fault, words = find_fault(done, said, "NVML")
    if is_absent(said.get("load_error"), NAME):
        return LibraryAnswer(library="NVML", found=False, said=words)
    gpus = tuple(_gpu(values) for values in said.get("gpus") or () if values.get("name"))
    return LibraryAnswer(
        library="NVML",
        found=True,
        path=said.get("path"),
        version=said.get("nvml") or version_in_name(said.get("path"), "libnvidia-ml.so"),
        api_version=dotted_api(said.get("api")),
        driver_version=said.get("driver"),
        code=None if fault else said.get("code"),
        fault=fault,
        said=words or str(said.get("error") or ""),
        gpus=gpus,
        pairs=tuple(
            GpuPair(one=it["one"], other=it["other"], path=it.get("path"), p2p_read=it.get("read"))
            for it in said.get("pairs") or ()
        ),
        gpu_errors=tuple(
            f"GPU {values['index']}: {error}"
            for values in said.get("gpus") or ()
            for error in values.get("errors") or ()
        ),
    )


def _gpu(values: dict[str, Any]) -> Gpu:
    """Turn one GPU's answers into the fact; NVML counts memory in bytes."""
    capability = values.get("capability")
    mig = values.get("mig")
    return Gpu(
        name=values["name"],
        source="NVML",
        index=values["index"],
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory_total_mib=values["total"] >> 20 if "total" in values else None,
        memory_free_mib=values["free"] >> 20 if "free" in values else None,
        mig=None if mig is None else ("enabled" if mig else "disabled"),
        uuid=values.get("uuid"),
        pci_bus_id=values.get("pci"),
    )
