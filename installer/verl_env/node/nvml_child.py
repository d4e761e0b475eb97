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
# nvmlGpuTopologyLevel_t and nvmlGpuP2PStatus_t, in the words of `nvidia-smi topo -m` and `topo -p2p r`.
_PATHS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
# nvmlGpuP2PCapsIndex_t: nvidia-ml-py defines the first as a tuple, which its own function does not take.
_READ, _NVLINK = 0, 2
_LINKS = 18  # NVML_NVLINK_MAX_LINKS


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


def describe_pair(one: int, other: int, nvml: Any) -> dict[str, Any]:
    """Return how two GPUs are linked; GPUs behind NVSwitches reach each other over all their NVLinks."""
    pair: dict[str, Any] = {"one": one, "other": other}
    try:
        first, second = nvml.nvmlDeviceGetHandleByIndex(one), nvml.nvmlDeviceGetHandleByIndex(other)
    except nvml.NVMLError:
        return pair
    asked: dict[str, Any] = {}
    ask("read", lambda: nvml.nvmlDeviceGetP2PStatus(first, second, _READ), asked, nvml)
    ask("nvlink", lambda: nvml.nvmlDeviceGetP2PStatus(first, second, _NVLINK), asked, nvml)
    ask("level", lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(first, second), asked, nvml)
    pair["read"] = _P2P.get(asked.get("read", 6), "U")
    links = min(len(active_links(first, nvml)), len(active_links(second, nvml))) if asked.get("nvlink") == 0 else 0
    direct = len([link for link in active_links(first, nvml) if leads_to(first, link, second, nvml)]) if links else 0
    pair["path"] = f"NV{direct or links}" if links else _PATHS.get(asked.get("level", -1))
    return pair


def active_links(handle: Any, nvml: Any) -> list[int]:
    """Return the NVLinks of a GPU that are up."""
    found: dict[str, Any] = {}
    for link in range(_LINKS):
        ask(str(link), lambda link=link: nvml.nvmlDeviceGetNvLinkState(handle, link), found, nvml)  # type: ignore[misc]
    return [link for link in range(_LINKS) if found.get(str(link)) == 1]


def leads_to(handle: Any, link: int, other: Any, nvml: Any) -> bool:
    """Whether a link ends at another GPU, and not at a switch."""
    found: dict[str, Any] = {}
    ask("far", lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId, found, nvml)
    ask("other", lambda: nvml.nvmlDeviceGetPciInfo(other).busId, found, nvml)
    return "far" in found and found["far"] == found.get("other")


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
    count = system.get("count") or 0
    say(gpus=[describe_gpu(index, nvml) for index in range(count)])
    say(pairs=[describe_pair(one, other, nvml) for one in range(count) for other in range(one + 1, count)])


if __name__ == "__main__":
    main(sys.argv[1])
