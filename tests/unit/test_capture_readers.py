"""What each kind of list is read as, on small excerpts of real ones."""

from __future__ import annotations

import json

import pytest

from verl_env.capture.listing import Vcs
from verl_env.capture.recognise import read_text
from verl_env.errors import LockError, UsageError, VerlEnvError

TORCH_REPORT = """\
Collecting environment information...
PyTorch version: 2.11.0+cu130
Is debug build: False
CUDA used to build PyTorch: 13.0

OS: Ubuntu 24.04.3 LTS (x86_64)
Libc version: glibc-2.39

Python version: 3.12.3 (main, Aug 31 2026, 10:18:26) [GCC 13.3.0] (64-bit runtime)
Python platform: Linux-6.18.44-x86_64-with-glibc2.39
CUDA runtime version: 13.0.88
GPU models and configuration: GPU 0: NVIDIA H200
Nvidia driver version: 580.159.04

CPU:
Architecture:                            x86_64

Versions of relevant libraries:
[pip3] numpy==2.5.2
[pip3] nvidia-cuda-runtime==13.0.96
[pip3] torch==2.11.0
[pip3] torchvision==0.26.0
[conda] Could not collect
"""
VLLM_REPORT = """\
==============================
        System Info
==============================
OS                           : Ubuntu 20.04.4 LTS (x86_64)
Libc version                 : glibc-2.31
==============================
       PyTorch Info
==============================
PyTorch version              : 2.6.0+cu118
CUDA used to build PyTorch   : 11.8
Python version               : 3.12.9 | packaged by Anaconda, Inc. | (main, Feb  6 2025, 18:56:27) [GCC 11.2.0]
CUDA runtime version         : 11.8.89
GPU models and configuration :
GPU 0: NVIDIA GeForce RTX 3090
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version        : 520.61.05
Architecture:                       x86_64
==============================
Versions of relevant libraries
==============================
[pip3] nvidia-cufft-cu12==10.0.0.1
[pip3] torch==2.6.0+cu118
[conda] torch                     2.6.0+cu118              pypi_0    pypi
[conda] mkl                       2023.1.0         h213fc3f_46344    defaults
vLLM Version                 : 0.8.5.post1
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
"""
CONDA_TORCH_REPORT = """\
PyTorch version: 2.3.1
CUDA used to build PyTorch: 12.1
Nvidia driver version: 535.54.03
[pip3] torch==2.3.1
[conda] pytorch                   2.3.1           py3.12_cuda12.1_cudnn8.9.2_0    pytorch
[conda] pytorch-cuda              12.1                 ha16c6d3_5    pytorch
vLLM Version: N/A
vLLM Build Flags:
"""
SGLANG_REPORT = """\
Python: 3.10.16 (main, Dec  4 2024, 08:53:37) [GCC 9.4.0]
CUDA available: True
GPU 0,1,2,3,4,5,6,7: NVIDIA H800
GPU 0,1,2,3,4,5,6,7 Compute Capability: 9.0
CUDA_HOME: /usr/local/cuda
NVCC: Cuda compilation tools, release 12.4, V12.4.131
CUDA Driver Version: 535.183.06
PyTorch: 2.5.1+cu124
sglang: 0.4.1.post7
flashinfer: 0.1.6+cu124torch2.4
sgl_kernel: Module Not Found
PIL: 10.3.0
zmq: 26.2.0
multipart: 0.0.20
vllm: 0.6.4.post1
NVIDIA Topology:
        GPU0    GPU1
GPU0     X      NV18
"""
CONDA_EXPORT = """\
name: verl
channels:
  - defaults
dependencies:
  - _libgcc_mutex=0.1=main
  - openssl=3.0.18=hd6dcaed_0
  - python=3.12.0=h996f2a0_0
  - pytorch::pytorch-cuda=12.1
  - pip:
      - torch==2.8.0+cu128
      - verl==0.7.0.dev0
prefix: /opt/conda/envs/spo
"""
SCRIPT = """\
#!/bin/bash
export MAX_JOBS=32
pip install "sglang[all]==0.4.6.post5" --no-cache-dir --find-links https://example.invalid/whl/cu124/torch2.6 && pip install torch-memory-saver
pip install "vllm==0.8.5" "torch==2.6.0" \\
    "transformers[hf_xet]>=4.51.0" ray[default]
wget -nv https://example.invalid/flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl && \\
    pip install --no-cache-dir flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl
python -m pip install --no-build-isolation --verbose .
pip install vllm==0.8.5.post1
"""
HASHED = f"""\
torch==2.11.0 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
numpy==2.0.0
"""
FREEZE = """\
# made by pip freeze
-e git+https://me:token@git.example/verl-project/verl.git@0123456789012345678901234567890123456789#egg=verl
flash_attn @ https://me:secret@files.example/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl?X-Token=1#sha256=abc
vllm @ file:///home/someone/vllm
GitPython==3.1.44
torch==2.6.0+cu124
"""
UV_LOCK = """\
version = 1
requires-python = ">=3.10, <3.13"

[[package]]
name = "verl"
version = "0.9.0"
source = { editable = "." }

[[package]]
name = "torch"
version = "2.11.0"
source = { registry = "https://index.example/simple" }
wheels = [{ url = "https://index.example/torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl", size = 1 }]

[[package]]
name = "numpy"
version = "2.0.0"
source = { registry = "https://index.example/simple" }
resolution-markers = ["sys_platform == 'darwin'"]

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = "https://index.example/simple" }
sdist = { url = "https://index.example/numpy-1.26.4.tar.gz", hash = "sha256:00", size = 1 }

[[package]]
name = "megatron-core"
version = "0.13"
source = { git = "https://git.example/m?rev=core#0123456789012345678901234567890123456789" }
"""
PYLOCK = """\
lock-version = "1.0"
requires-python = "==3.12.*"
created-by = "uv"

[[packages]]
name = "torch"
version = "2.11.0"
wheels = [{ url = "https://index.example/torch-2.11.0-cp312-cp312-linux_x86_64.whl", hashes = { sha256 = "00" } }]

[[packages]]
name = "numpy"
version = "2.0.0"
wheels = [{ url = "https://index.example/numpy-2.0.0-cp312-cp312-linux_x86_64.whl", hashes = {} }]

[[packages]]
name = "only-windows"
version = "1"
marker = "sys_platform == 'win32'"
wheels = [{ url = "https://index.example/only_windows-1-py3-none-any.whl", hashes = { sha256 = "00" } }]
"""


def test_torchs_report():
    """The label comes from torch itself; the node from the rest."""
    found = read_text(TORCH_REPORT, "report.txt")
    assert ("torch collect_env report", "3.12.3", "13.0", "13.0.88", "580.159.04", "2.39", "x86_64", ("NVIDIA H200",)) == (
        found.kind, found.python, found.cuda, found.toolkit, found.driver, found.glibc, found.machine, found.gpus
    )  # fmt: skip
    assert {
        "numpy": "2.5.2", "nvidia-cuda-runtime": "13.0.96", "torch": "2.11.0+cu130", "torchvision": "0.26.0"
    } == found.versions  # fmt: skip


def test_vllms_report():
    """Repeated and masked lines, conda's own packages, and vLLM's version from below."""
    found = read_text(VLLM_REPORT, "report.txt")
    assert ("vLLM collect_env report", "520.61.05", "11.8", "2.31", 2) == (
        found.kind, found.driver, found.cuda, found.glibc, len(found.gpus)
    )  # fmt: skip
    assert {"torch": "2.6.0+cu118", "vllm": "0.8.5.post1", "mkl": "2023.1.0"} == found.versions
    assert (None, True) == (found.of("nvidia-cufft-cu12").version, found.of("mkl").foreign)
    assert ("the versions of nvidia-cufft-cu12 were masked before this was pasted",) == found.notes


def test_condas_torch_in_a_report():
    """Conda's pytorch is torch; there is no vLLM."""
    found = read_text(CONDA_TORCH_REPORT, "report.txt")
    assert ("2.3.1", "12.1", None) == (found.versions["torch"], found.cuda, found.of("vllm"))


def test_sglangs_report():
    """Modules have pip's names, absent ones are absent, GPUs are counted."""
    found = read_text(SGLANG_REPORT, "report.txt")
    assert ("SGLang check_env report", "3.10.16", "12.4", "535.183.06", 8, "9.0") == (
        found.kind, found.python, found.toolkit, found.driver, len(found.gpus), found.capability
    )  # fmt: skip
    assert {
        "torch": "2.5.1+cu124", "sglang": "0.4.1.post7", "flashinfer": "0.1.6+cu124torch2.4", "pillow": "10.3.0",
        "pyzmq": "26.2.0", "python-multipart": "0.0.20", "vllm": "0.6.4.post1",
    } == found.versions  # fmt: skip


def test_a_conda_environment():
    """Python comes from conda, packages from pip; libraries are conda's own."""
    found = read_text(CONDA_EXPORT, "environment.yml")
    assert ("conda environment", "3.12.0", "12.1") == (found.kind, found.python, found.cuda)
    assert ["torch", "verl"] == [it.name for it in found.packages if not it.foreign]
    assert "python" not in found.versions


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# packages in environment at /x:\n#\n# Name  Version  Build  Channel\nnumpy 1.26.4 py312_0\ntorch 2.3.1 pypi_0 pypi\n", id="list"),
        pytest.param("# platform: linux-64\nnumpy=1.26.4=py312_0\ntorch=2.3.1=pypi_0\n", id="export"),
        pytest.param("@EXPLICIT\nhttps://conda.example/numpy-1.26.4-py312_0.conda#aa\nhttps://conda.example/torch-2.3.1-pypi_0.conda\n", id="explicit"),
    ],
)  # fmt: skip
def test_conda_list(text):
    """Three ways to write the same."""
    assert {"numpy": "1.26.4", "torch": "2.3.1"} == read_text(text, "list.txt").versions


def test_an_install_script():
    """Later commands win; wheels by file name; folders are not understood, and that is said."""
    found = read_text(SCRIPT, "install.sh")
    assert ("install script", "12.4", False) == (found.kind, found.cuda, found.complete)
    assert {
        "sglang": "0.4.6.post5", "vllm": "0.8.5.post1", "torch": "2.6.0",
        "flash-attn": "2.7.4.post1+cu12torch2.6cxx11abifalse",
    } == found.versions  # fmt: skip
    assert ">=4.51.0" == found.of("transformers").spec
    assert ("vllm 0.8.5 is replaced by 0.8.5.post1 further down",) == found.notes
    assert ("pip install .",) == found.unread


def test_hashed_requirements():
    """Continued lines, several hashes, and a line without one among others."""
    found = read_text(HASHED, "requirements.txt")
    assert "hashed requirements" == found.kind
    assert [True, False] == [it.hashed for it in found.packages]


def test_a_freeze():
    """Names are normalised; repositories, URLs and folders are understood without what is secret in them."""
    found = read_text(FREEZE, "freeze.txt")
    verl, flash, git_python, torch = (found.of(it) for it in ("verl", "flash-attn", "gitpython", "torch"))
    commit = "0123456789012345678901234567890123456789"
    assert Vcs(kind="git", url="https://git.example/verl-project/verl.git", commit=commit) == verl.vcs
    assert ("2.8.3", "https://files.example/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl") == (
        flash.version,
        flash.url,
    )
    assert ("3.1.44", "2.6.0+cu124") == (git_python.version, torch.version)
    assert (None, None) == (found.of("vllm").version, found.of("vllm").url)
    assert not any(word in repr(found) for word in ("secret", "token", "X-Token", "someone"))


def test_wishes():
    """A range is no version."""
    found = read_text("vllm<=0.6.3\nray[default]==2.10.0\nnumpy==1.*\ndill\n", "requirements.txt")
    assert ("requirements", False, {"ray": "2.10.0"}) == (found.kind, found.complete, found.versions)
    assert ("<=0.6.3", "==1.*") == (found.of("vllm").spec, found.of("numpy").spec)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Package Version Editable project location\n------- ------- ---\ntorch 2.6.0\nverl 0.4.1 /home/x/verl\n", id="columns"),
        pytest.param("torch (2.6.0)\nverl (0.4.1)\n", id="old"),
        pytest.param(json.dumps([{"name": "torch", "version": "2.6.0"}, {"name": "verl", "version": "0.4.1"}]), id="json"),
    ],
)  # fmt: skip
def test_pip_list(text):
    """Three ways to write the same."""
    found = read_text(text, "list.txt")
    assert ("pip list", {"torch": "2.6.0", "verl": "0.4.1"}) == (found.kind, found.versions)


def test_uv_lock():
    """The project is no package; another platform's version is not taken; a file without a hash is known."""
    found = read_text(UV_LOCK, "uv.lock")
    assert ("uv.lock", "3.12") == (found.kind, found.python)
    assert {"torch": "2.11.0", "numpy": "1.26.4", "megatron-core": "0.13"} == found.versions
    assert [False, True, None] == [found.of(it).hashed for it in ("torch", "numpy", "megatron-core")]
    assert 40 == len(found.of("megatron-core").vcs.commit)


def test_pylock():
    """Markers apply; a missing hash is a finding for `check`, not a malformed file."""
    found = read_text(PYLOCK, "pylock.toml")
    assert ("PEP 751 lockfile", "3.12", {"torch": "2.11.0", "numpy": "2.0.0"}) == (
        found.kind, found.python, found.versions
    )  # fmt: skip
    assert [True, False] == [it.hashed for it in found.packages]


def test_a_terminal_log():
    """nvidia-smi's lines give the node, package lines the packages; a file listing is nothing."""
    text = (
        "===== nvidia-smi --query-gpu=index,uuid,name,driver_version,compute_cap --format=csv\n"
        "0, GPU-00000000-1111, NVIDIA H200, 580.159.04, 9.0, 143771 MiB\n"
        "===== ls -l\n-r--r--r-- 1 root root 0 Nov 30 08:38 params\n"
        "===== pip freeze\ntorch==2.11.0\n"
    )
    found = read_text(text, "log.txt")
    assert ("terminal log", {"torch": "2.11.0"}, ("NVIDIA H200",), "9.0") == (
        found.kind, found.versions, found.gpus, found.capability
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        pytest.param("pylock.toml", PYLOCK[:200], LockError, id="pylock cut off"),
        pytest.param("pylock.toml", 'lock-version = "1.0"\n', LockError, id="pylock without packages"),
        pytest.param("pylock.toml", PYLOCK.replace('name = "torch"', "name = 1"), LockError, id="pylock, odd name"),
        pytest.param("uv.lock", UV_LOCK[:300], LockError, id="uv.lock cut off"),
        pytest.param("uv.lock", "package = 3\n", LockError, id="uv.lock, odd packages"),
        pytest.param("uv.lock", "version = 1\n", UsageError, id="uv.lock without packages"),
        pytest.param("uv.lock", "x = " + "[" * 5000, LockError, id="nested too deeply"),
        pytest.param("list.json", '[{"name": "torch", "version"', UsageError, id="JSON cut off"),
        pytest.param("list.txt", "", UsageError, id="empty"),
        pytest.param("list.txt", "# only\n# comments\n", UsageError, id="comments"),
        pytest.param("list.txt", "Dear all,\nit does not work!\n", UsageError, id="prose"),
        pytest.param("list.txt", "<html><body>Not found</body></html>\n", UsageError, id="a web page"),
    ],
)
def test_what_is_no_list(name, text, kind):
    """One clear error of our own, whatever was given."""
    with pytest.raises(VerlEnvError) as caught:
        read_text(text, name)
    assert (kind, True) == (type(caught.value), name in caught.value.message)


def test_files_that_include_each_other():
    """A cycle of -r lines is named."""
    files = {"a.txt": "-r b.txt\n", "b.txt": "-r a.txt\n"}
    with pytest.raises(UsageError, match="include each other"):
        read_text("-r a.txt\ntorch==2.6.0\n", "start.txt", files.__getitem__)


@pytest.mark.parametrize(
    ("files", "python"),
    [
        pytest.param(["x-1-cp310-cp310-linux_x86_64.whl", "y-1-py3-none-any.whl"], "3.10", id="one"),
        pytest.param(["x-1-cp310-cp310-linux_x86_64.whl", "y-1-cp311-cp311-linux_x86_64.whl"], None, id="two"),
        pytest.param(["x-1-cp38-abi3-linux_x86_64.whl"], None, id="abi3 is for later ones too"),
    ],
)
def test_wheels_say_which_python(files, python):
    """A script that fetches a wheel for Python 3.10 is for Python 3.10."""
    assert python == read_text("".join(f"pip install {it}\n" for it in files), "install.sh").python
