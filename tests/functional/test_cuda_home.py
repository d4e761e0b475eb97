"""CUDA_HOME put together in an environment from made wheels of a toolkit; over a base too. The real one: tests/live."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

from tiny import MACHINE, MINOR, Site, Tool, build_wheel
from verl_env import uv
from verl_env.environment.driver_stub import functions_of, render_stub
from verl_env.node.host import Host
from verl_env.node.toolkits import find_toolkits

ROOT = "nvidia/cu13"
# Says its version, and where it thinks that the toolkit is: as the real one does, beside itself.
NVCC = '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n'
CUDA_H = """
#define cuMemAlloc cuMemAlloc_v2
    #define cuMemcpy __CUDA_API_PTDS(cuMemcpy)
CUresult CUDAAPI cuInit(unsigned int flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *p, size_t n);
CUresult CUDAAPI cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n);
"""
WHEELS = {
    "nvidia-cuda-nvcc": {"bin/nvcc": NVCC, "bin/nvcc.profile": "TOP = $(_HERE_)/..\n", "bin/crt/link.stub": "x"},
    "nvidia-cuda-crt": {"include/crt/host_config.h": "x", "include/crt/host_runtime.h": "x"},
    "nvidia-nvvm": {"nvvm/bin/cicc": NVCC, "nvvm/libdevice/libdevice.10.bc": "x", "lib/libnvvm.so.4": "x"},
    "nvidia-cuda-runtime": {
        "include/cuda.h": CUDA_H,
        "include/cuda_runtime.h": "x",
        "lib/libcudart.so.13": "x",
        "lib/libcudart_static.a": "x",
    },
    "nvidia-cuda-cccl": {"include/cccl/cuda/std/version": "x", "include/cccl/cub/cub.cuh": "x", ".metadata/notes": "x"},
    "nvidia-cublas": {"include/cublas.h": "x", "lib/libcublas.so.13": "x"},
}
# One file that each way of looking must find.
EXPECTED = {
    "bin/nvcc", "bin/nvcc.profile", "bin/crt/link.stub", "include/crt/host_config.h", "include/cccl/cub/cub.cuh",
    "include/cuda.h", "include/cublas.h", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc", "lib64/libcudart.so",
    "lib64/libcudart.so.13", "lib64/libcudart_static.a", "lib64/libcublas.so", "lib64/libnvvm.so", "lib/libcudart.so",
    "lib64/stubs/libcuda.so",
}  # fmt: skip


def build_toolkit(folder, *, less=()):
    """Return the toolkit's wheels, each with its files below the folder that they share."""
    return [
        build_wheel(
            folder,
            name,
            "13.0.88",
            files={f"{ROOT}/{file}": text for file, text in files.items()},
            programs=[f"{ROOT}/{file}" for file in files if file.endswith(("nvcc", "cicc"))],
        )
        for name, files in WHEELS.items()
        if name not in less
    ]


@pytest.fixture
def world(tmp_path, serve):
    """Return a function that gives verl-env with a row for CUDA 13.0 whose packages hold a toolkit."""

    def start(*, less=(), cuda="13.0"):
        store = tmp_path / "store"
        torch_files = {
            "torch/__init__.py": "",
            "torch/version.py": "cuda: str = '13.0'\n",
            "torch/utils/cpp_extension.py": "",
        }
        wheels = [build_wheel(store, "torch", "2.11.0", files=torch_files), build_wheel(store, "verl", "99.0")]
        wheels += build_toolkit(store, less=less)
        site = Site(folder=tmp_path / "site")
        site.add_row("tiny", wheels, cuda=cuda, settings=["a=b"], imports=["verl"])
        tool = Tool(home=tmp_path / "home", work=tmp_path / "work", site=site)
        tool.home.mkdir()
        tool.work.mkdir()
        tool.index = serve(store)
        tool.wheels = {it.name.split("-")[0].replace("_", "-"): it for it in wheels}
        return tool

    return start


def install(tool, *words):
    done = tool("install", "--row", "tiny", "--driver", "580.95.05", *words)
    assert 0 == done.code, done.err
    return tool.current.resolve()


def exported(tool):
    return tool("env", "--json").json["data"]["values"]


def files_of(folder):
    """Return the files that are reached through a folder, links followed."""
    found = (os.path.join(above, name) for above, _, names in os.walk(folder, followlinks=True) for name in names)
    return {os.path.relpath(path, folder) for path in found if os.path.isfile(path)}


def links_of(folder):
    return {it: os.readlink(it) for it in sorted(folder.rglob("*")) if it.is_symlink()}


def test_is_put_together_from_the_wheels(world):
    """It has what compilers and linkers look for, by links that stay inside, and its nvcc is the one on PATH."""
    tool = world()
    folder = install(tool)
    cuda = folder / "cuda"
    assert EXPECTED <= files_of(cuda)
    assert [] == [link for link in links_of(cuda).values() if os.path.isabs(link)]
    assert all(it.resolve().is_relative_to(folder) for it in links_of(cuda))
    values = exported(tool)
    assert (str(cuda), str(cuda)) == (values["CUDA_HOME"], values["CUDA_PATH"])
    assert [f"{folder}/bin", f"{cuda}/bin"] == values["PATH"].split(":")[:2]
    assert "V13.0.88" in tool("run", "--", "nvcc", "--version").out


def test_nvcc_finds_the_rest_beside_itself(world):
    """`bin` is a folder of its own: nvcc takes `bin/..`, as the kernel resolves it, for the toolkit."""
    folder = install(world())
    assert (folder / "cuda/bin/../lib64/libcudart.so").is_file()
    assert (folder / "cuda/include").is_symlink()


def test_verify_knows_it(world):
    """It is in the manifest: a link that went, or one that leads elsewhere, is found."""
    tool = world()
    folder = install(tool)
    assert 0 == tool("verify").code
    link = folder / "cuda/lib64/libcudart.so"
    link.unlink()
    assert "cuda/lib64/libcudart.so" in tool("verify").out
    link.symlink_to("/usr/lib/libcudart.so.12")
    done = tool("verify")
    assert (1, True) == (done.code, "a link to /usr/lib/libcudart.so.12" in done.out)


def test_repair_makes_it_again(world):
    """A repaired environment has one too, in its own folder."""
    tool = world()
    folder = install(tool)
    (folder / "cuda/bin/nvcc").unlink()
    done = tool("repair")
    assert 0 == done.code, done.err
    again = tool.current.resolve()
    assert again != folder
    assert EXPECTED <= files_of(again / "cuda")
    assert str(again / "cuda") == exported(tool)["CUDA_HOME"]


def make_base(tool, folder, names, more=()):
    """Return the Python of a base that has these packages of the row, and more."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    wheels = [tool.wheels[name] for name in names]
    words = [uv.executable(), "pip", "install", "-q", "--python", python, "--no-deps", *wheels, *more]
    subprocess.run(words, check=True)
    return python


def test_over_a_base_it_joins_both(world, tmp_path):
    """What the base has is linked there, the rest in front; what the lock does not have is left out, wherever it lies."""
    tool = world()
    stray = {f"{ROOT}/include/stray.h": "x", f"{ROOT}/lib/libstray.so.1": "x"}
    old = {f"{ROOT}/lib/libcublas.so.13": "old", f"{ROOT}/include/cublas.h": "old", f"{ROOT}/include/gone.h": "old"}
    more = [
        build_wheel(tmp_path / "others", "nvidia-stray", "1.0", files=stray),
        build_wheel(tmp_path / "others", "nvidia-cublas", "12.0", files=old),
    ]
    python = make_base(tool, tmp_path / "base", ["torch", "nvidia-cuda-runtime", "nvidia-nvvm"], more)
    folder = install(tool, "--base", python)
    cuda = folder / "cuda"
    assert EXPECTED <= files_of(cuda)
    assert [] == [it for it in files_of(cuda) if "stray" in it or "gone" in it]
    packages = f"lib/python{MINOR}/site-packages/{ROOT}"
    theirs, ours = tmp_path / "base" / packages, folder / packages
    assert (theirs / "lib/libcudart.so.13") == (cuda / "lib64/libcudart.so").resolve()
    assert (ours / "lib/libcublas.so.13") == (cuda / "lib64/libcublas.so").resolve()
    assert (ours / "bin/nvcc") == (cuda / "bin/nvcc").resolve()
    assert 0 == tool("verify").code


def without_toolkit_of(minor):
    """Skip aloud where the machine has a toolkit of this minor, which would be taken."""
    if any(it.version and it.version.startswith(f"{minor}.") for it in find_toolkits(Host())):
        pytest.skip(f"a CUDA {minor} toolkit is here")


def test_what_is_missing_is_named(world):
    """A lock without a part that compiling needs has no CUDA_HOME; the note says which part, and what will not work."""
    without_toolkit_of("13.1")
    tool = world(less=["nvidia-cuda-cccl"], cuda="13.1")
    done = tool("install", "--row", "tiny", "--driver", "595.10.05")
    assert 0 == done.code, done.err
    assert (False, None) == ((tool.current.resolve() / "cuda").exists(), exported(tool)["CUDA_HOME"])
    assert "it lacks nvidia-cuda-cccl (the C++ library that torch's headers use)" in done.err
    assert "these do not work: torch extensions (torch.utils.cpp_extension)" in done.err


def test_a_toolkit_of_another_minor_is_not_taken(world):
    """Wheels whose nvcc is of another minor than the row's CUDA make no CUDA_HOME."""
    without_toolkit_of("13.1")
    tool = world(cuda="13.1")
    done = tool("install", "--row", "tiny", "--driver", "595.10.05")
    assert 0 == done.code, done.err
    assert exported(tool)["CUDA_HOME"] is None
    assert f"13.0.88 at {tool.current.resolve()}/cuda" in done.err


def test_names_of_the_drivers_functions():
    """Functions as declared, those of newer versions, and those of per-thread streams."""
    assert ("cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpy", "cuMemcpy_ptds") == functions_of(CUDA_H)


def test_stub_of_the_driver_links_and_refuses(tmp_path):
    """A program links with -lcuda against the stub, wants libcuda.so.1, and is told that this is a stub."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is here")
    stub = tmp_path / "stubs" / "libcuda.so"
    stub.parent.mkdir()
    stub.write_bytes(render_stub(("cuInit", "cuMemcpy_ptds"), MACHINE))
    source = tmp_path / "a.c"
    source.write_text(
        "int cuInit(unsigned); int cuMemcpy_ptds(void);\nint main(void) { return cuInit(0) + cuMemcpy_ptds(); }\n"
    )
    subprocess.run([compiler, source, "-o", tmp_path / "a", f"-L{stub.parent}", "-lcuda"], check=True)
    assert 127 == subprocess.run([tmp_path / "a"], env={}, stderr=subprocess.DEVNULL, check=False).returncode
    (tmp_path / "libcuda.so.1").write_bytes(stub.read_bytes())
    done = subprocess.run([tmp_path / "a"], env={"LD_LIBRARY_PATH": str(tmp_path)}, check=False)
    assert 34 + 34 == done.returncode
    assert 34 == ctypes.CDLL(str(stub)).cuInit(0)


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_stub_is_of_its_machine(machine, number):
    """A stub is made for the lock's machine, whatever this one is; the same names give the same bytes."""
    stub = render_stub(("cuInit",), machine)
    assert (b"\x7fELF", number) == (stub[:4], int.from_bytes(stub[18:20], "little"))
    assert stub == render_stub(("cuInit",), machine)


def make_toolkit(folder, version):
    """Make a toolkit of a system: a folder whose nvcc says a version."""
    nvcc = folder / "bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {version[:4]}, V{version}"\n')
    nvcc.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        pytest.param("12.9.86", True, id="the row's minor"),
        pytest.param("12.8.93", False, id="an older minor"),
        pytest.param("13.0.88", False, id="another major"),
    ],
)
def test_cuda_12_takes_the_systems_toolkit(tmp_path, serve, version, taken):
    """A row for CUDA 12 has no nvcc: one of the system's is asked for its version; another's is named and not taken."""
    store = tmp_path / "store"
    files = {
        "torch/__init__.py": "", "torch/utils/cpp_extension.py": "", "flashinfer/jit/__init__.py": "",
        "vllm/third_party/deep_gemm/__init__.py": "",
    }  # fmt: skip
    wheels = [build_wheel(store, "torch", "2.8.0", files=files), build_wheel(store, "verl", "99.0")]
    site = Site(folder=tmp_path / "site")
    site.add_row("twelve", wheels, cuda="12.9", settings=["a=b"], imports=["verl"])
    tool = Tool(home=tmp_path / "home", work=tmp_path / "work", site=site, index=serve(store))
    tool.home.mkdir()
    tool.work.mkdir()
    if not taken:
        without_toolkit_of("12.9")
    system = make_toolkit(tmp_path / "a toolkit", version)
    done = tool("install", "--row", "twelve", "--driver", "580.95.05", CUDA_HOME=str(system))
    assert 0 == done.code, done.err
    assert (str(system) if taken else None) == exported(tool)["CUDA_HOME"]
    assert taken != (f"{version} at {system}" in done.err)
    names = "flashinfer's JIT, vLLM's DeepGEMM, torch extensions (torch.utils.cpp_extension)"
    assert taken != (f"Without nvcc these do not work: {names}" in done.err)
