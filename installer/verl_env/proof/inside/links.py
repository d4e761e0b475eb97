"""What NVML says of the GPUs that CUDA shows: NVLinks of each, peer-to-peer state of each pair."""

from __future__ import annotations

import ctypes
import importlib.util

READ = 0  # NVML_P2P_CAPS_INDEX_READ: nvidia-ml-py defines it as a tuple, which its own function does not take
LINKS = 18  # NVML_NVLINK_MAX_LINKS
STATES = ("OK", "chipset not supported", "GPU not supported", "topology not supported", "disabled", "not supported")


def describe_links(pynvml_path):
    """Return one line; NVML is read through the file of nvidia-ml-py at a path, for environments that have none."""
    nvml = load(pynvml_path)
    if nvml is None:
        return "NVML was not asked: no nvidia-ml-py"
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByPciBusId(bus) for bus in bus_ids()]
    links = [active_links(handle, nvml) for handle in handles]
    each = ", ".join(f"GPU {number}: {said}" for number, said in enumerate(links))
    pairs = [
        f"{one}-{other} {pair_state(handles[one], handles[other], nvml)}"
        for one in range(len(handles))
        for other in range(one + 1, len(handles))
    ]
    return f"NVLinks {each}; P2P read by NVML {', '.join(pairs)}"


def load(path):
    """Load pynvml from a file, or as the environment has it; None when neither is there."""
    spec = importlib.util.spec_from_file_location("pynvml", path) if path else importlib.util.find_spec("pynvml")
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bus_ids():
    """Return the PCI bus ids of CUDA's devices, in CUDA's order: NVML has an order of its own."""
    cuda = ctypes.CDLL("libcuda.so.1")
    count, device = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        raise RuntimeError("libcuda does not start")
    found = []
    for index in range(count.value):
        text = ctypes.create_string_buffer(32)
        if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetPCIBusId(text, len(text), device):
            raise RuntimeError(f"libcuda does not say where device {index} is")
        found.append(text.value)
    return found


def active_links(handle, nvml):
    """Return how many NVLinks of a GPU are up, and which are not."""
    states = {link: link_state(handle, link, nvml) for link in range(LINKS)}
    up, down = ([link for link, state in states.items() if state is wanted] for wanted in (True, False))
    inactive = f" (down: {' '.join(map(str, down))})" if down else ""
    return f"{len(up)} of {len(up) + len(down)} up{inactive}" if up or down else "none"


def link_state(handle, link, nvml):
    """Return whether a link is up, or None where the GPU has no such link."""
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
    except nvml.NVMLError:
        return None


def pair_state(one, other, nvml):
    """Return NVML's word for a pair's peer-to-peer reads."""
    try:
        status = nvml.nvmlDeviceGetP2PStatus(one, other, READ)
    except nvml.NVMLError as err:
        return f"not known ({err})"
    return STATES[status] if status < len(STATES) else str(status)
