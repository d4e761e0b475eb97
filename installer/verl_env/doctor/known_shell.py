"""Findings about variables that change what an environment loads, compiles or sees."""

from __future__ import annotations

from verl_env.doctor.kind import Known

SHELL: dict[str, Known] = {
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
}
