"""CUDA_HOME of a CUDA 13 row, for real: what builds with it where the machine's own toolkits are out of reach.

No GPU is needed: everything is compiled for one (compute capability 9.0) and linked, and nothing is run on it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.network]
CAPABILITY = {"TORCH_CUDA_ARCH_LIST": "9.0", "FLASHINFER_CUDA_ARCH_LIST": "9.0a"}
PROGRAM = """
#include <cstdio>
#include <cuda.h>
#include <cublas_v2.h>
#include <nvrtc.h>
__global__ void set(int* p) { *p = 1; }
int main() {
    int count = -1, major = 0, minor = 0;
    nvrtcVersion(&major, &minor);
    printf("%s; nvrtc %d.%d\\n", cudaGetErrorName(cudaGetDeviceCount(&count)), major, minor);
    if (count > 0) { set<<<1, 1>>>(nullptr); cuInit(0); cublasDestroy(nullptr); }
    return 0;
}
"""
EXTENSION = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cub/cub.cuh>
__global__ void twice(float* p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= 2; }
torch::Tensor run(torch::Tensor x) {
    c10::cuda::CUDAGuard guard(x.device());
    at::cuda::getCurrentCUDABlasHandle();
    twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel());
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
LOAD_EXTENSION = """
import sys
from torch.utils.cpp_extension import load
module = load("twice", ["twice.cu"], build_directory=sys.argv[1])
print(module.run.__name__, module.__file__)
"""
LOAD_FLASHINFER = """
from flashinfer.jit.page import gen_page_module
spec = gen_page_module()
assert not spec.is_aot, "it was compiled elsewhere"
spec.build(verbose=False)
spec.load(spec.jit_library_path)
print(spec.jit_library_path)
"""


@pytest.fixture
def inside(cuda_13, tmp_path):
    """Return a function that runs a program in the environment, where no toolkit of the system can be reached."""
    toolkits = [it for it in (*Path("/usr/local").glob("cuda*"), *Path("/opt").glob("cuda*")) if it.is_dir()]
    real = sorted({str(it.resolve()) for it in toolkits})
    if real and (os.geteuid() != 0 or not shutil.which("unshare")):
        pytest.skip(f"{', '.join(real)} cannot be hidden: that needs root and unshare")

    def run(*words, **more):
        hide = "".join(f"mount -t tmpfs none {shlex.quote(it)} && " for it in real)
        search = {"PATH": "/usr/bin:/bin", "FLASHINFER_WORKSPACE_BASE": str(tmp_path), **CAPABILITY, **more}
        command = shlex.join([sys.executable, "-m", "verl_env", "run", "--", *map(str, words)])
        argv = ["unshare", "-m"] if real else []
        done = subprocess.run(
            [*argv, "sh", "-c", f"{hide}exec {command}"],
            env=cuda_13.variables(**search),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    return run


def needed(library):
    """Return the names of the libraries that a program or library wants."""
    done = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", done.stdout))


def test_no_other_toolkit_is_in_reach(inside, cuda_13):
    """The only nvcc is the environment's, and it is of the row's minor."""
    cuda = cuda_13.home / "current"
    said = inside("sh", "-c", "command -v nvcc; nvcc --version; ls /usr/local/cuda*/bin/nvcc 2>/dev/null || :")
    assert said.startswith(f"{cuda.resolve()}/cuda/bin/nvcc\n")
    assert "release 13.0" in said
    assert "/usr/local" not in said


def test_a_program(inside, tmp_path):
    """nvcc compiles and links a program with the runtime in it, and one with the runtime and cuBLAS beside it."""
    (tmp_path / "a.cu").write_text(PROGRAM)
    links = ["-lcublas", "-lnvrtc", "-lcuda"]
    inside("nvcc", "-arch=sm_90", "a.cu", "-o", "static", *links)
    inside("nvcc", "-arch=sm_90", "-cudart", "shared", "a.cu", "-o", "shared", *links)
    assert {"libcuda.so.1", "libcublas.so.13", "libnvrtc.so.13"} <= needed(tmp_path / "static")
    assert "libcudart.so.13" in needed(tmp_path / "shared") - needed(tmp_path / "static")


def test_a_program_starts(inside, tmp_path):
    """Without the driver's own functions, a program runs here too, and says which runtime compiler it found."""
    source = "\n".join(line for line in PROGRAM.splitlines() if "cublasDestroy" not in line)
    (tmp_path / "a.cu").write_text(source)
    inside("nvcc", "-arch=sm_90", "a.cu", "-o", "a", "-lnvrtc")
    said = inside("sh", "-c", 'LD_LIBRARY_PATH="$CUDA_HOME/lib64" ./a')
    assert "nvrtc 13.0" in said


def test_a_torch_extension(inside, tmp_path):
    """torch.utils.cpp_extension builds and loads a module with a kernel, torch's CUDA headers and CUB."""
    (tmp_path / "twice.cu").write_text(EXTENSION)
    (tmp_path / "load.py").write_text(LOAD_EXTENSION)
    (tmp_path / "built").mkdir()
    assert f"run {tmp_path}/built/twice.so" in inside("python", "load.py", tmp_path / "built")
    assert {"libcudart.so.13", "libtorch_cuda.so"} <= needed(tmp_path / "built/twice.so")


def test_a_flashinfer_module(inside, tmp_path):
    """flashinfer's JIT builds and loads a module; its kernels are for the capability that was asked for."""
    (tmp_path / "load.py").write_text(LOAD_FLASHINFER)
    library = Path(inside("python", "load.py").splitlines()[-1])
    assert library.is_relative_to(tmp_path)
    assert "libcudart.so.13" in needed(library)
