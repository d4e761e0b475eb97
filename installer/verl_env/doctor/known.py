"""Every finding that `detect` and `doctor` can make: its title, its area, why it matters, and who can act.

The pages of docs/findings are made from this table (scripts/make_doctor_docs.py), and a test holds it against the
code. `request` is what to send to an administrator, where nobody else can act; `{evidence}` is what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_env.node.facts import Finding

AREAS = ("node", "gpu", "room", "shell", "environment", "build", "huggingface", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One kind of finding."""

    area: str
    title: str
    why: str
    request: str = ""


def found(
    finding_id: str, evidence: str, action: str, *, severity: str = "warning", what: str = "", why: str = ""
) -> Finding:
    """Make a finding of a known kind, with the value seen and where, and the one action."""
    known = KNOWN[finding_id]
    return Finding(
        id=finding_id,
        severity=severity,
        what=what or known.title,
        evidence=evidence,
        why=why or known.why,
        action=action,
    )


def _node(title: str, why: str, request: str = "") -> Known:
    return Known(area="node", title=title, why=why, request=request)


_REBOOT = "Please reboot this node, or unload and load the nvidia kernel modules: {evidence}"
_XID = "Please look at the kernel log of this node for `NVRM: Xid`, and drain and reboot it: {evidence}"

KNOWN: dict[str, Known] = {
    # ── node: made by node/findings*.py ──
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
    # ── gpu ──
    "gpu-memory-held": Known(
        area="gpu",
        title="GPU memory is in use",
        why="vLLM takes a share of all memory, SGLang of what is free: what others hold is missing to it",
    ),
    "gpu-memory-unexplained": Known(
        area="gpu",
        title="GPU memory is in use, and no process that can be seen holds it",
        why="a dead job's memory, or a process of another container: nothing here can free it",
        request="Please see which process holds GPU memory on this node (nvidia-smi on the host), and end what is left "
        "over: {evidence}",
    ),
    "gpu-zombie": Known(
        area="gpu",
        title="a dead process still holds GPU memory",
        why="its memory comes back when its parent takes notice of its end, or ends itself",
    ),
    "gpu-exclusive": Known(
        area="gpu",
        title="a GPU takes one process only (exclusive or prohibited compute mode)",
        why="verl puts several processes on one GPU: trainer and inference engine share it",
        request="Please set the compute mode of these GPUs to Default: {evidence}",
    ),
    "p2p-missing": Known(
        area="gpu",
        title="GPUs of this node do not reach each other directly (no peer-to-peer)",
        why="tensor parallelism falls back to host memory; where NCCL believes otherwise, it hangs",
    ),
    "iommu-translates": Known(
        area="gpu",
        title="an IOMMU translates between GPUs",
        why="with translation and ACS, peer-to-peer writes between GPUs get lost, and NCCL hangs at start",
        request="Please set the IOMMU of this node to pass-through (kernel parameter iommu=pt), or switch ACS off for "
        "the GPUs' bridges: {evidence}",
    ),
    "mig-nccl": Known(
        area="gpu",
        title="a GPU is divided (MIG)",
        why="NCCL and peer-to-peer do not work across MIG devices: one process, one device, no tensor parallelism",
    ),
    # ── room ──
    "shm-small": Known(
        area="room",
        title="shared memory (/dev/shm) is small",
        why="NCCL, Ray's object store and data loaders share memory there: bus errors, or Ray in /tmp and slow",
    ),
    "shm-full": Known(
        area="room",
        title="shared memory (/dev/shm) is nearly full",
        why="NCCL, Ray's object store and data loaders share memory there; dead processes leave files",
    ),
    "tmp-full": Known(
        area="room",
        title="the temporary folder has no room",
        why="Ray's sessions and spilled objects, Triton's and pip's builds go there",
    ),
    "tmp-not-writable": Known(
        area="room", title="the temporary folder cannot be written", why="Ray, Triton and torch do not start without"
    ),
    "open-files-low": Known(
        area="room",
        title="few files may be open at once",
        why="Ray and data loaders open thousands; then connections fail for no visible reason",
    ),
    "cgroup-memory": Known(
        area="room",
        title="this container or job may use much less memory than the machine has",
        why="Ray and data loaders size themselves by the machine unless told; the kernel then kills them",
    ),
    "home-full": Known(
        area="room", title="the folder of environments or caches has no room", why="installs and downloads stop there"
    ),
    # ── shell ──
    "pythonpath-set": Known(
        area="shell",
        title="PYTHONPATH puts other folders before every environment's packages",
        why="another version of a package is imported than the one that was installed",
    ),
    "pythonhome-set": Known(
        area="shell", title="PYTHONHOME is set", why="it points every Python at another one's standard library"
    ),
    "user-site-leaks": Known(
        area="shell",
        title="packages in ~/.local stand before those of the system, and leak into some environments",
        why="another version of a package is imported than the one that was installed",
    ),
    "library-path-shadows": Known(
        area="shell",
        title="LD_LIBRARY_PATH holds libraries that an environment brings itself",
        why="the loader takes those first: undefined symbols, wrong cuDNN, wrong NCCL, old libstdc++",
    ),
    "preload-set": Known(
        area="shell", title="LD_PRELOAD is set", why="its libraries are loaded into every program, before all others"
    ),
    "conda-active": Known(
        area="shell",
        title="a conda environment is active",
        why="its programs and libraries come first on PATH, and builds take its headers",
    ),
    "cuda-home-broken": Known(
        area="shell",
        title="CUDA_HOME does not name a toolkit",
        why="flashinfer's JIT, DeepGEMM and torch extensions look for nvcc there, and nowhere else",
    ),
    "cuda-home-other": Known(
        area="shell",
        title="CUDA_HOME names a toolkit of another version than the environment's CUDA",
        why="what is compiled at run time would be of another CUDA than what runs it",
    ),
    "visible-devices": Known(
        area="shell",
        title="CUDA_VISIBLE_DEVICES is not a list of indices",
        why="vLLM's releases read it as numbers, and stop",
    ),
    "visible-devices-mig": Known(
        area="shell",
        title="CUDA_VISIBLE_DEVICES names a MIG device by its identifier",
        why="vLLM's releases read it as numbers, and stop",
    ),
    "expandable-segments": Known(
        area="shell",
        title="PYTORCH_CUDA_ALLOC_CONF turns on expandable segments",
        why="the memory pool of vLLM's and SGLang's sleep mode, which verl uses, does not go with them",
    ),
    "allocator-blocking": Known(
        area="shell",
        title="CUDA_LAUNCH_BLOCKING is set",
        why="every kernel waits for the one before: training is many times slower",
    ),
    # ── environment ──
    "no-environment": Known(
        area="environment", title="no environment is in use", why="there is nothing to run with yet"
    ),
    "environment-broken": Known(
        area="environment", title="the environment's Python does not start", why="nothing in it can run"
    ),
    "environment-damaged": Known(
        area="environment",
        title="files of the environment are missing, changed or extra",
        why="what runs is not what was locked and proved",
    ),
    "python-changed": Known(
        area="environment",
        title="the environment's Python is another than it was built with",
        why="Ray wants the same patch on every node, and compiled packages the same minor",
    ),
    "python-libpython": Known(
        area="environment",
        title="this Python's shared library is missing or of another version",
        why="extensions that link libpython do not load, or crash",
    ),
    "row-does-not-fit": Known(
        area="environment",
        title="the environment's row does not fit this node",
        why="it was made for another driver, GPU, glibc or processor",
    ),
    "torch-cpu-on-gpu": Known(
        area="environment",
        title="torch is a CPU build, and a GPU is here",
        why="nothing will use the GPU, or the first CUDA call stops",
    ),
    "two-cuda-majors": Known(
        area="environment",
        title="packages of two CUDA majors stand together",
        why="a library of one is asked for by a package of the other: libcudart.so.N is not found",
    ),
    "set-incoherent": Known(
        area="environment",
        title="packages do not go together",
        why="imports fail, or kernels do",
    ),
    # ── build ──
    "no-compiler": Known(
        area="build",
        title="no C compiler is found",
        why="Triton compiles a small helper at the first kernel, and stops without",
    ),
    "compiler-broken": Known(
        area="build",
        title="the C compiler cannot compile",
        why="Triton and torch's inductor compile helpers at run time",
    ),
    "python-headers": Known(
        area="build",
        title="Python.h of this Python is missing",
        why="Triton compiles a small helper against it at the first kernel, and stops without",
    ),
    "no-ninja": Known(
        area="build", title="ninja is not found", why="flashinfer and torch extensions build their kernels with it"
    ),
    "cuda-home-missing": Known(
        area="build",
        title="no nvcc of the environment's CUDA is found",
        why="flashinfer compiles kernels that its wheels lack at run time",
    ),
    # ── huggingface ──
    "hf-home-not-writable": Known(
        area="huggingface",
        title="the Hugging Face cache cannot be written",
        why="a model that is not there yet cannot be fetched, and locks cannot be taken",
    ),
    "hf-full": Known(
        area="huggingface", title="the Hugging Face cache has little room", why="a download of a model stops half-way"
    ),
    "hf-two-caches": Known(
        area="huggingface",
        title="Hugging Face caches lie in two places",
        why="models are fetched twice, and what one program has another does not find",
    ),
    "hf-legacy-variable": Known(
        area="huggingface",
        title="a variable is set that current releases do not read",
        why="the cache is elsewhere than the variable says",
    ),
    "hf-offline": Known(
        area="huggingface", title="downloads are switched off", why="only what is in the cache is found"
    ),
    "hf-no-token": Known(
        area="huggingface", title="the model wants a token, and none is here", why="its files cannot be fetched"
    ),
    "hf-unreachable": Known(
        area="huggingface", title="the model hub does not answer", why="what is not in the cache cannot be fetched"
    ),
    "hf-model-missing": Known(
        area="huggingface", title="the model is not here", why="the run would begin with a download, or stop"
    ),
    "hf-model-incomplete": Known(
        area="huggingface", title="files of the model are missing or cut off", why="loading stops in the middle"
    ),
    "hf-model-code": Known(
        area="huggingface",
        title="the model brings code of its own",
        why="it loads only with trust_remote_code, which runs that code",
    ),
    # ── ray ──
    "ray-dashboard-port": Known(
        area="ray",
        title="RAY_ADDRESS has the dashboard's port",
        why="8265 is the job API; a driver that joins the cluster needs the GCS port (6379)",
    ),
    "ray-address-loopback": Known(
        area="ray", title="RAY_ADDRESS is a loopback address", why="other nodes, and containers, reach themselves there"
    ),
    "ray-unreachable": Known(
        area="ray", title="the Ray head does not answer", why="a driver waits, and stops after its time-out"
    ),
    "ray-stale-session": Known(
        area="ray",
        title="Ray remembers a cluster that is gone",
        why="`ray.init(address='auto')` and `ray status` try it first, and wait",
    ),
    "ray-temp-path": Known(
        area="ray",
        title="Ray's temporary folder has too long a path",
        why="a socket's path may have 107 bytes, and Ray adds about 65 of its own",
    ),
    "ray-version-mismatch": Known(
        area="ray",
        title="nodes of the cluster run another Ray or Python",
        why="Ray wants the same Ray and the same Python patch on every node",
    ),
    "ray-gpus-missing": Known(
        area="ray", title="Ray sees fewer GPUs than there are", why="placement groups for the rest wait for ever"
    ),
    "ray-object-store": Known(
        area="ray",
        title="Ray's object store is larger than /dev/shm",
        why="it goes to /tmp and is slow, or ends with a bus error",
    ),
    "ray-memory-limit": Known(
        area="ray",
        title="Ray believes in more memory than this container may use",
        why="the kernel ends processes before Ray's own guard does",
    ),
    "ray-no-block": Known(
        area="ray",
        title="`ray start` without --block is the container's first process",
        why="Ray goes to the background, and the container ends with its first process",
    ),
}
