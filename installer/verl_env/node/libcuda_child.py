"""Run as a program of its own: load libcuda as any program would, print what it says as JSON lines.

Each line is merged over the last, so what came before a hang or a crash is kept. No context is made: this
takes no memory on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from pathlib import Path
from typing import Any

NAME = "libcuda.so.1"
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


def say(**values: Any) -> None:
    """Print values at once, so that they are not lost with us."""
    print(json.dumps(values), flush=True)


def loaded_path() -> str | None:
    """Return the file that the loader chose."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            path = line.split(maxsplit=5)[5:]
            if path and path[0].rpartition("/")[2].startswith("libcuda.so"):
                return path[0]
    return None


def error_name(cuda: Any, code: int) -> str | None:
    """Return CUDA's own name for an error, such as `CUDA_ERROR_NO_DEVICE`."""
    text = ctypes.c_char_p()
    with contextlib.suppress(AttributeError):
        if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
            return text.value.decode(errors="replace")
    return None


def read_uuid(cuda: Any, device: Any) -> str | None:
    """Return a device's UUID as hexadecimal digits; under MIG it is that of the MIG device."""
    raw = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        with contextlib.suppress(AttributeError):
            return bytes(raw).hex() if getattr(cuda, name)(raw, device) == 0 else None
    return None


def list_devices(cuda: Any) -> list[dict[str, Any]]:
    """Return name, compute capability and memory of each device that CUDA lets this process see."""
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    devices: list[dict[str, Any]] = []
    for index in range(count.value):
        device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        if cuda.cuDeviceGet(ctypes.byref(device), index) != 0:
            continue
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), CAPABILITY_MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), CAPABILITY_MINOR, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        devices.append(
            {
                "index": index,
                "uuid": read_uuid(cuda, device),
                "name": name.value.decode(errors="replace"),
                "capability": [major.value, minor.value],
                "total": memory.value,
            }
        )
    return devices


def main() -> None:
    """Load, ask the version (which needs no device), initialise, and list devices."""
    try:
        cuda = ctypes.CDLL(NAME)
    except OSError as err:
        say(load_error=str(err))
        return
    say(path=loaded_path())
    version = ctypes.c_int()
    with contextlib.suppress(AttributeError):
        if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
            say(api=version.value)
    try:
        code = cuda.cuInit(0)
    except AttributeError as err:
        say(load_error=str(err))
        return
    say(code=code, name=error_name(cuda, code))
    if code == 0:
        with contextlib.suppress(AttributeError):
            say(devices=list_devices(cuda))


if __name__ == "__main__":
    main()
