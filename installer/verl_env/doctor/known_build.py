"""Findings about what compiles at run time."""

from __future__ import annotations

from verl_env.doctor.kind import Known

BUILD: dict[str, Known] = {
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
}
