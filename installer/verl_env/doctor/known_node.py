"""Findings of the node itself, which `node/findings*.py` make: driver, device files, NVML, libcuda."""

from __future__ import annotations

from verl_env.doctor.kind import Known


def _node(title: str, why: str, request: str = "") -> Known:
    return Known(area="node", title=title, why=why, request=request)


_REBOOT = "Please reboot this node, or unload and load the nvidia kernel modules: {evidence}"
_XID = "Please look at the kernel log of this node for `NVRM: Xid`, and drain and reboot it: {evidence}"

NODE: dict[str, Known] = {
    "driver-not-loaded": _node(
        "an NVIDIA GPU is here, and no kernel driver is loaded",
        "without the kernel driver nothing can use the GPU",
        "Please install and load NVIDIA's driver on this node: {evidence}",
    ),
    "gpu-not-in-container": _node(
        "the container was started without its GPUs", "programs reach a GPU through /dev/nvidia* alone"
    ),
    "device-files-missing": _node(
        "the driver is loaded, and its device files are missing",
        "programs reach a GPU through /dev/nvidia* alone",
        "Please run `nvidia-modprobe -c 0 -u` on this node, which makes the device files: {evidence}",
    ),
    "driver-library-mismatch": _node(
        "kernel driver and driver libraries are of different versions",
        "the libraries refuse a kernel driver of another version; an update leaves this until the reboot",
        _REBOOT,
    ),
    "nvml-hung": _node("NVML hangs", "vLLM, Ray and torch ask NVML which GPUs there are, and would hang too", _XID),
    "nvml-crashed": _node(
        "NVML crashes whoever asks it",
        "vLLM, Ray and torch ask NVML which GPUs there are",
        "Please install the driver's libraries again, at the kernel driver's version: {evidence}",
    ),
    "nvml-unloadable": _node("NVML cannot be loaded", "vLLM, Ray and torch ask NVML which GPUs there are"),
    "libcuda-hung": _node("libcuda hangs", "every CUDA program would hang too", _XID),
    "libcuda-crashed": _node(
        "libcuda crashes whoever asks it",
        "every CUDA program would crash too",
        "Please install the driver's libraries again, at the kernel driver's version: {evidence}",
    ),
    "libcuda-unloadable": _node("libcuda cannot be loaded", "every CUDA program begins by loading libcuda.so.1"),
    "nvml-unknown-error": _node(
        "the container has lost its GPUs",
        "`systemctl daemon-reload` on the host takes devices from running containers (cgroup v2)",
    ),
    "nvml-no-permission": _node(
        "this user may not open the GPUs",
        "programs reach a GPU through /dev/nvidia*",
        "Please give this user access to /dev/nvidia*, or GPUs in the job: {evidence}",
    ),
    "nvml-failed": _node("NVML does not answer", "vLLM, Ray and torch ask NVML which GPUs there are", _XID),
    "nvml-missing": _node(
        "the driver's NVML library is not found", "vLLM, Ray and torch ask NVML which GPUs there are"
    ),
    "gpu-unreadable": _node(
        "a GPU does not answer",
        "a GPU that fell off the bus or wants a reset stops every job that touches it",
        _XID,
    ),
    "libcuda-missing": _node("the driver's libcuda is not found", "every CUDA program begins by loading libcuda.so.1"),
    "libcuda-stub": _node(
        "a stub libcuda stands before the driver's",
        "a toolkit's `stubs` folder is for linking only: every CUDA call through it fails",
    ),
    "cuda-device-unavailable": _node(
        "CUDA finds its devices taken", "in exclusive compute mode one process holds a GPU alone"
    ),
    "fabric-manager": _node(
        "the GPUs wait for NVIDIA's fabric manager (error 802)",
        "with NVSwitch, CUDA starts only once the fabric manager, of exactly the driver's version, is up",
        "Please install nvidia-fabricmanager at exactly the driver's version on this node, and start it: {evidence}",
    ),
    "compat-driver-mismatch": _node(
        "the compat libcuda does not go with the kernel driver (error 803)",
        "a compat libcuda works only with the driver branches it was made for",
    ),
    "compat-unsupported": _node(
        "the compat libcuda does not support these GPUs (error 804)",
        "forward compatibility is for datacenter GPUs only",
    ),
    "cuda-unknown-error": _node(
        "CUDA does not start (unknown error)",
        "most often /dev/nvidia-uvm is missing or not allowed here",
        "Please run `nvidia-modprobe -u -c 0` on this node: {evidence}",
    ),
    "cuda-failed": _node("CUDA does not start", "every CUDA program would meet the same", _XID),
    "gpus-hidden": _node("CUDA_VISIBLE_DEVICES hides every GPU", "CUDA programs started here see no GPU"),
    "cuda-no-device": _node("CUDA sees no device", "every CUDA program would fall back to the CPU or stop"),
    "probe-failed": _node("a probe gave no answer", "what it would have found is missing"),
    "probe-timed-out": _node(
        "a look did not come to its end in time",
        "what it would have found is missing; what hangs a look hangs programs too",
    ),
    "no-glibc": _node("the C library is not glibc", "torch, vLLM and SGLang publish wheels for glibc only"),
}
