"""Run as a program of its own: ask NVML who uses the GPUs, and how they are linked; lines of JSON.

Started with `-I -S`, and given the folder that holds pynvml: the library can hang or crash without taking us along.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LINKS = 18  # NVML_NVLINK_MAX_LINKS
_READ = 0  # NVML_P2P_CAPS_INDEX_READ: nvidia-ml-py defines it as a tuple, which its own function does not take


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return an answer, or None for whatever the GPU or driver does not support or permit."""
    import pynvml

    try:
        return call(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def describe(index: int, nvml: Any) -> dict[str, Any]:
    """Return one GPU's memory, processes, modes and links."""
    handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index}
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    owners = []
    kinds = (nvml.nvmlDeviceGetComputeRunningProcesses, False), (nvml.nvmlDeviceGetGraphicsRunningProcesses, True)
    for kind, graphics in kinds:
        owners += [
            {"pid": it.pid, "used": it.usedGpuMemory or 0, "graphics": graphics} for it in ask(kind, handle) or ()
        ]
    mode = ask(nvml.nvmlDeviceGetMigMode, handle)
    links = [ask(nvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(_LINKS)]
    return {
        "index": index,
        "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
        "total": int(memory.total) if memory else None,
        "used": int(memory.used) if memory else None,
        "owners": owners,
        "compute_mode": ask(nvml.nvmlDeviceGetComputeMode, handle),
        "mig": bool(mode and mode[0]),
        "nvlinks": [{"link": link, "up": state == 1} for link, state in enumerate(links) if state is not None],
    }


def reach(count: int, nvml: Any) -> list[list[int]]:
    """Return pairs of GPUs without peer-to-peer reads, with NVML's status of each."""
    handles = [ask(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    missing = []
    for one in range(count):
        for other in range(one + 1, count):
            status = ask(nvml.nvmlDeviceGetP2PStatus, handles[one], handles[other], _READ)
            if status not in (None, nvml.NVML_P2P_STATUS_OK):
                missing.append([one, other, int(status)])
    return missing


def main(folder: str) -> None:
    """Initialise, ask, print."""
    sys.path.append(folder)
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as err:
        print(json.dumps({"error": str(err)}), flush=True)
        return
    print(json.dumps({"driver": ask(nvml.nvmlSystemGetDriverVersion)}), flush=True)
    count = ask(nvml.nvmlDeviceGetCount) or 0
    print(json.dumps({"gpus": [describe(index, nvml) for index in range(count)]}), flush=True)
    print(json.dumps({"apart": reach(count, nvml)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
