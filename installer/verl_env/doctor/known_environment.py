"""Findings about the environment: its Python, its packages, and whether it fits here."""

from __future__ import annotations

from verl_env.doctor.kind import Known

ENVIRONMENT: dict[str, Known] = {
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
}
