"""What the kernel, nvidia-smi and nvcc print, as read from real machines."""

from __future__ import annotations

import pytest

from verl_env.node import answers
from verl_env.node.answers import LibraryAnswer
from verl_env.node.driver import parse_gpu_information, parse_nvrm
from verl_env.node.facts import Gpu, Libcuda
from verl_env.node.folders import Mount, find_mount, is_network, parse_mountinfo
from verl_env.node.libcuda import judge_libcuda
from verl_env.node.nvidia_smi import FIELDS, parse_cuda_version, parse_gpus
from verl_env.node.toolkits import parse_nvcc_version
from verl_env.process import Completed

H200_QUERY = """\
0, GPU-00000000-1111-2222, NVIDIA H200, 580.159.04, 9.0, 143771, 143156, Disabled, 00000000:00:06.0
"""
H200_HEADER = """\
Mon Nov 30 08:38:16 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@) \n"
            "GCC version:  gcc version 15.3.0 (GCC) \n",
            "580.159.04",
            id="open",
        ),
        pytest.param(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "535.161.07",
            id="proprietary",
        ),
        pytest.param(
            "NVRM version: NVIDIA UNIX aarch64 Kernel Module  570.86.15  Fri Jan 24 21:00:00 UTC 2025\n",
            "570.86.15",
            id="arm",
        ),
        pytest.param(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12\n", "390.157", id="two-parts"
        ),
        pytest.param("", None, id="empty"),
        pytest.param("GCC version:  gcc version 12.3.0\n", None, id="no-nvrm"),
    ],
)
def test_kernel_driver_version(text, expected):
    """Both the open and the proprietary kernel module name their version."""
    assert expected == parse_nvrm(text)


def test_real_h200_query():
    """The real node's answer gives its driver and its one GPU."""
    driver, gpus = parse_gpus(H200_QUERY)
    expected = Gpu(
        name="NVIDIA H200",
        source="nvidia-smi",
        index=0,
        compute_capability="9.0",
        memory_total_mib=143771,
        memory_free_mib=143156,
        mig="disabled",
        uuid="GPU-00000000-1111-2222",
        pci_bus_id="00000000:00:06.0",
    )
    assert ("580.159.04", (expected,)) == (driver, gpus)


def test_what_a_gpu_does_not_say_is_unknown():
    """`[N/A]` and `[Unknown Error]` are no values."""
    _, (gpu,) = parse_gpus(
        "0, GPU-1, NVIDIA GeForce RTX 4090, 550.54.15, 8.9, [Unknown Error], [N/A], [N/A], 0:01:00.0\n"
    )
    assert (None, None, None, "8.9") == (
        gpu.memory_total_mib,
        gpu.memory_free_mib,
        gpu.mig,
        gpu.compute_capability,
    )


@pytest.mark.parametrize("text", ["", "No devices were found\n", "Failed to initialize NVML: Unknown Error\n"])
def test_no_gpus_in_words(text):
    """What is no row of values gives no GPU."""
    assert (None, ()) == parse_gpus(text, FIELDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (H200_HEADER, "13.0"),
        ("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: ERR!  |", None),
        ("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: N/A   |", None),
        ("CUDA Version                                           : 13.0", "13.0"),
        ("", None),
    ],
)
def test_cuda_version_of_nvidia_smi(text, expected):
    """The header's CUDA version is the driver API's; ERR! and N/A are none."""
    assert expected == parse_cuda_version(text)


def test_gpu_information_of_the_kernel():
    """The kernel's own file names the model; a UUID it hides is none."""
    text = "Model: \t\t NVIDIA H200\nIRQ:   \t 35\nGPU UUID: \t GPU-????\nBus Location: \t 0000:00:06.0\n"
    assert ("NVIDIA H200", None, "0000:00:06.0") == parse_gpu_information(text)


def test_nvcc_version():
    """The version is nvcc's own, in full and not only the release."""
    text = (
        "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
        "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n"
    )
    assert ("13.0.88", None) == (parse_nvcc_version(text), parse_nvcc_version("command not found"))


@pytest.mark.parametrize(
    ("number", "expected"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4"), (0, None), (None, None)]
)
def test_api_version_in_words(number, expected):
    """CUDA's number is a thousand majors and ten minors."""
    assert expected == answers.dotted_api(number)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/local/nvidia/lib64/libcuda.so.580.159.04", "580.159.04"),
        ("/usr/lib/wsl/lib/libcuda.so.1", None),
        ("/usr/lib/libcuda.so.1.1", "1.1"),
        (None, None),
    ],
)
def test_version_in_a_file_name(path, expected):
    """A driver library's real name ends in the driver's version, except under WSL."""
    assert expected == answers.version_in_name(path, "libcuda.so")


def test_lines_before_a_crash():
    """Whole lines count, and the one that was cut off does not."""
    assert {"path": "/x", "api": 13000} == answers.merge_lines('{"path": "/x"}\n{"api": 13000}\n{"co')


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("libcuda.so.1: cannot open shared object file: No such file or directory", True),
        ("libnvidia-ptx.so: cannot open shared object file: No such file or directory", False),
        ("/x/libcuda.so.1: invalid ELF header", False),
        (None, False),
    ],
)
def test_absent_or_broken(message, expected):
    """Only the library's own absence is absence; one of its needs missing is a fault."""
    assert expected == answers.is_absent(message, "libcuda.so.1")


@pytest.mark.parametrize(
    ("returncode", "timed_out", "said", "expected"),
    [
        (0, False, {}, ""),
        (0, False, {"load_error": "x: invalid ELF header"}, "unloadable"),
        (-9, True, {}, "hung"),
        (-11, False, {}, "crashed"),
        (1, False, {}, "crashed"),
    ],
)
def test_how_a_child_ended(returncode, timed_out, said, expected):
    """A time limit, a signal and a load error are told apart."""
    done = Completed(argv=(), returncode=returncode, stdout="", stderr="", seconds=1, timed_out=timed_out)
    assert expected == answers.find_fault(done, said, "NVML")[0]


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw
40 27 0:50 / /home rw,relatime shared:5 - nfs4 10.0.0.1:/home rw,vers=4.2
41 40 0:51 / /home/me/local\\040disk rw - xfs /dev/nvme0n1 rw
42 27 0:52 / /scratch rw shared:7 master:1 - lustre 10.0.0.2@o2ib:/s rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/srv/.cache", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/home/me/local disk/x", "xfs"),
        ("/homework", "ext4"),
        ("/scratch/x", "lustre"),
    ],
)
def test_file_system_of_a_path(path, expected):
    """The longest mount above a path is its own; a name that only begins alike is not."""
    assert expected == find_mount(path, parse_mountinfo(MOUNTS)).kind


def test_later_mount_covers_the_earlier():
    """Of two mounts at one point, the last is the one that is seen."""
    mounts = (Mount(point="/data", kind="ext4"), Mount(point="/data", kind="nfs"))
    assert "nfs" == find_mount("/data/x", mounts).kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nfs4", True),
        ("lustre", True),
        ("fuse.sshfs", True),
        ("fuse.juicefs", True),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
        ("overlay", False),
        ("ext4", False),
    ],
)
def test_network_kinds(kind, expected):
    """Shared file systems are told from local ones."""
    assert expected == is_network(kind)


@pytest.mark.parametrize(
    ("path", "code", "compat"),
    [
        pytest.param("/usr/lib/libcuda.so.580.95.05", 0, False, id="the-drivers-own"),
        pytest.param("/usr/local/cuda/compat/libcuda.so.590.44.01", 0, True, id="compat-works"),
        pytest.param("/usr/local/cuda/compat/libcuda.so.590.44.01", 803, True, id="compat-refused"),
        pytest.param("/usr/lib/libcuda.so.590.44.01", 0, True, id="elsewhere-and-works"),
        pytest.param("/usr/lib/libcuda.so.590.44.01", 803, False, id="left-by-an-update"),
    ],
)
def test_compat(path, code, compat):
    """A compat library has a telling folder, or another version than the driver's and works all the same."""
    version = path.rpartition("libcuda.so.")[2]
    answer = LibraryAnswer(library="libcuda", found=True, path=path, version=version, code=code)
    assert compat == judge_libcuda(answer, "580.95.05").compat


def test_libcuda_that_is_not_there():
    """No library, no fact."""
    assert None is judge_libcuda(LibraryAnswer(library="libcuda", found=False), None)


def test_libcuda_on_the_real_h200():
    """The real node's library is the driver's own and works."""
    path = "/usr/local/nvidia/lib64/libcuda.so.580.159.04"
    answer = LibraryAnswer(library="libcuda", found=True, path=path, version="580.159.04", api_version="13.0", code=0)
    expected = Libcuda(path=path, source="dlopen libcuda.so.1", version="580.159.04", api_version="13.0", works=True)
    assert expected == judge_libcuda(answer, "580.159.04")
