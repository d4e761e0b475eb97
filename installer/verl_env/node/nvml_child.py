"""Run as a program of its own: ask NVML, and print what it says as lines of JSON, each merged over the last.

The library can hang or crash; lines already printed survive it. Nothing of verl_env is imported here: the
child is started with `-I -S`, and is given the folder that holds pynvml.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "libnvidia-ml.so.1"


def say(**values: Any) -> None:
    """Print values at once, so that they are not lost with us."""
    print(json.dumps(values), flush=True)


def loaded_path(name: str) -> str | None:
    """Return the file that the loader chose for a library."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            path = line.split(maxsplit=5)[5:]
            if path and path[0].rpartition("/")[2].startswith(name.removesuffix(".1")):
                return path[0]
    return None


def ask(name: str, call: Callable[[], Any], into: dict[str, Any], nvml: Any) -> None:
    """Keep an answer; what a GPU does not support is None, and any other refusal is kept in `errors`."""
    try:
        into[name] = call()
    except nvml.NVMLError as err:
        if err.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            into.setdefault("errors", []).append(f"{name}: {err}")


def describe_gpu(index: int, nvml: Any) -> dict[str, Any]:
    """Return what NVML says about one GPU."""
    gpu: dict[str, Any] = {"index": index}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as err:
        return gpu | {"errors": [f"handle: {err}"]}
    ask("name", lambda: nvml.nvmlDeviceGetName(handle), gpu, nvml)
    ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle), gpu, nvml)
    ask("capability", lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), gpu, nvml)
    ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0], gpu, nvml)
    ask("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, gpu, nvml)
    memory: dict[str, Any] = {}
    ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle), memory, nvml)
    if "memory" in memory:
        gpu |= {"total": int(memory["memory"].total), "free": int(memory["memory"].free)}
    if "errors" in memory:
        gpu.setdefault("errors", []).extend(memory["errors"])
    if isinstance(gpu.get("pci"), bytes):
        gpu["pci"] = gpu["pci"].decode()
    return gpu


def main(folder: str) -> None:
    """Load the library as any program would, initialise it, and ask."""
    try:
        ctypes.CDLL(NAME)
    except OSError as err:
        say(load_error=str(err))
        return
    say(path=loaded_path(NAME))
    sys.path.append(folder)
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as err:
        say(code=err.value, error=str(err))
        return
    system: dict[str, Any] = {"code": 0}
    ask("driver", nvml.nvmlSystemGetDriverVersion, system, nvml)
    ask("nvml", nvml.nvmlSystemGetNVMLVersion, system, nvml)
    ask("api", nvml.nvmlSystemGetCudaDriverVersion_v2, system, nvml)
    ask("count", nvml.nvmlDeviceGetCount, system, nvml)
    say(**system)
    say(gpus=[describe_gpu(index, nvml) for index in range(system.get("count") or 0)])


if __name__ == "__main__":
    main(sys.argv[1])
