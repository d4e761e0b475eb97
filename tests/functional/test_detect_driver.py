"""Driver libraries of every temper, compiled and loaded for real, and a fake nvidia-smi on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from verl_env.node.facts import Driver, Gpu, Nvml, Value
from verl_env.node.host import Host
from verl_env.node.libcuda import ask_libcuda
from verl_env.node.probe import probe_node

STUBS = Path(__file__).parent / "nvml_stub"
VERSION = "580.159.04"
NVRM = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build  (nixbld@)  \n"


def compile_stub(source: str, folder: Path, name: str, version: str) -> None:
    """Build one stub the way drivers are laid out: the versioned file, and the link programs ask for."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f"{name}.{version}"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, STUBS / source], check=True)
    (folder / f"{name}.1").symlink_to(built.name)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Return a folder with both driver libraries, at the driver's version."""
    folder = tmp_path_factory.mktemp("driver")
    compile_stub("nvml.c", folder, "libnvidia-ml.so", VERSION)
    compile_stub("cuda.c", folder, "libcuda.so", VERSION)
    return folder


@pytest.fixture
def root(tmp_path):
    """Return the root of a machine with one H200 and a loaded driver."""
    folder = tmp_path / "root"
    (folder / "proc/driver/nvidia").mkdir(parents=True)
    (folder / "proc/driver/nvidia/version").write_text(NVRM)
    (folder / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    return folder


@pytest.fixture
def no_driver_here():
    """Skip on a machine whose own driver libraries the loader would find: they cannot be hidden from it."""
    answer = ask_libcuda(Host(environ={}))
    if answer.found:
        pytest.skip(f"this machine has {answer.path}, which the loader finds on its own")


def detect(root, *folders, patience=10.0, path="/nonexistent", **variables):
    """Probe a machine whose loader finds libraries in these folders."""
    environ = {
        "PATH": path,
        "HOME": str(root),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders)),
        **variables,
    }
    return probe_node(host=Host(root=root, environ=environ, patience=patience), interpreters=False)


def ids(node):
    """Return the findings' ids."""
    return [finding.id for finding in node.findings]


def test_healthy(root, stubs):
    """A healthy H200 gives NVML's facts in MiB, libcuda's API version, and no finding."""
    node = detect(root, stubs)
    expected = Gpu(
        name="NVIDIA H200",
        source="NVML",
        index=0,
        compute_capability="9.0",
        memory_total_mib=143771,
        memory_free_mib=143156,
        mig="disabled",
        uuid="GPU-00000000-1111-2222-3333-444444444444",
        pci_bus_id="00000000:00:06.0",
    )
    assert (expected,) == node.gpus
    assert Driver(version=VERSION, source="NVML") == node.driver
    assert Value(value="13.0", source="libcuda cuDriverGetVersion") == node.driver_api
    path = str(stubs / f"libnvidia-ml.so.{VERSION}")
    assert Nvml(source=path, version=f"13.{VERSION}", driver_version=VERSION) == node.nvml
    assert [] == ids(node)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, ("NV18", "OK"), id="NVSwitch, as `nvidia-smi topo` says of a real pair of H200s"),
        pytest.param({"STUB_NVLINK": "5"}, ("SYS", "OK"), id="across sockets"),
        pytest.param(
            {"STUB_NVLINK": "5", "STUB_P2P": "3"}, ("SYS", "TNS"), id="no P2P: the topology does not support it"
        ),
    ],
)
def test_how_two_gpus_are_linked(root, stubs, variables, expected):
    """Path and peer-to-peer reads of each pair, in the words of `nvidia-smi topo -m` and `topo -p2p r`."""
    (pair,) = detect(root, stubs, STUB_NVML="two", **variables).gpu_pairs
    assert (0, 1, *expected) == (pair.one, pair.other, pair.path, pair.p2p_read)


def test_libcuda_is_the_one_a_program_loads(root, stubs):
    """The real file behind libcuda.so.1 is named, with its version and that it works."""
    libcuda = detect(root, stubs).libcuda
    assert (str(stubs / f"libcuda.so.{VERSION}"), VERSION, False, True) == (
        libcuda.path,
        libcuda.version,
        libcuda.compat,
        libcuda.works,
    )


def test_compat_folder_first_on_the_path(root, stubs, tmp_path):
    """A newer libcuda in a compat folder that works is a compat one, and no mismatch."""
    compat = tmp_path / "cuda" / "compat"
    compile_stub("cuda.c", compat, "libcuda.so", "590.44.01")
    node = detect(root, compat, stubs)
    assert (True, True, "590.44.01") == (node.libcuda.compat, node.libcuda.works, node.libcuda.version)
    assert [] == ids(node)


def test_compat_that_does_not_go_with_the_driver(root, stubs, tmp_path):
    """A compat libcuda that cuInit refuses is named as such, not as a half-done update."""
    compat = tmp_path / "cuda" / "compat"
    compile_stub("cuda.c", compat, "libcuda.so", "590.44.01")
    assert ["compat-driver-mismatch"] == ids(detect(root, compat, stubs, STUB_CUDA="803"))


@pytest.mark.parametrize(
    ("nvml", "cuda", "expected"),
    [
        pytest.param("18", "803", ["driver-library-mismatch"], id="update-without-reboot"),
        pytest.param("999", "0", ["nvml-failed"], id="nvml-unknown-error"),
        pytest.param("4", "100", ["nvml-no-permission"], id="no-permission"),
        pytest.param("crash", "0", ["nvml-crashed"], id="nvml-crashes"),
        pytest.param("lost", "0", ["gpu-unreadable"], id="gpu-off-the-bus"),
        pytest.param("0", "34", ["libcuda-stub"], id="stub-libcuda"),
        pytest.param("0", "46", ["cuda-device-unavailable"], id="devices-taken"),
        pytest.param("0", "100", ["cuda-no-device"], id="no-device"),
        pytest.param("0", "802", ["fabric-manager"], id="fabric-manager"),
        pytest.param("0", "803", ["driver-library-mismatch"], id="cuda-mismatch"),
        pytest.param("0", "804", ["compat-unsupported"], id="compat-unsupported"),
        pytest.param("0", "999", ["cuda-unknown-error"], id="cuda-unknown"),
        pytest.param("0", "3", ["cuda-failed"], id="any-other"),
        pytest.param("0", "crash", ["libcuda-crashed"], id="libcuda-crashes"),
    ],
)
def test_broken_libraries_are_findings(root, stubs, nvml, cuda, expected):
    """Each way a driver breaks gives its one finding, and detect answers."""
    node = detect(root, stubs, STUB_NVML=nvml, STUB_CUDA=cuda)
    assert expected == ids(node)
    assert all(finding.evidence and finding.action for finding in node.findings)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("STUB_NVML", ["nvml-hung"]), ("STUB_CUDA", ["libcuda-hung"])],
)
def test_a_hang_is_ended(root, stubs, variable, expected):
    """A library that hangs is killed at the limit, and the other one's facts are kept."""
    node = detect(root, stubs, patience=1.5, **{variable: "hang"})
    assert expected == ids(node)
    assert ["NVIDIA H200"] == [gpu.name for gpu in node.gpus]


def test_what_came_before_a_crash_is_kept(root, stubs):
    """A libcuda that crashes in cuInit is still named, with its API version."""
    libcuda = detect(root, stubs, STUB_CUDA="crash").libcuda
    assert ("13.0", VERSION, False) == (libcuda.api_version, libcuda.version, libcuda.works)


def test_container_that_lost_its_gpus(root, stubs):
    """NVML's `Unknown Error` in a container is the loss of its device rules, not a broken GPU."""
    (root / ".dockerenv").touch()
    node = detect(root, stubs, STUB_NVML="999", STUB_CUDA="999")
    assert ["nvml-unknown-error"] == ids(node)
    assert "docker" == node.container.name


def test_libraries_of_another_version(root, stubs, tmp_path):
    """A libcuda of another version than the loaded driver, which does not work, is a mismatch."""
    updated = tmp_path / "lib"
    compile_stub("cuda.c", updated, "libcuda.so", "580.211.01")
    node = detect(root, updated, stubs, STUB_CUDA="803")
    assert ["driver-library-mismatch"] == ids(node)
    assert f"kernel driver {VERSION}" in node.findings[0].what
    assert "580.211.01" in node.findings[0].evidence


def test_gpus_hidden_by_a_variable(root, stubs):
    """An empty CUDA_VISIBLE_DEVICES explains that CUDA sees nothing."""
    assert ["gpus-hidden"] == ids(detect(root, stubs, STUB_CUDA="100", CUDA_VISIBLE_DEVICES=""))


@pytest.mark.parametrize(
    ("name", "expected"), [("libcuda.so.1", "libcuda-unloadable"), ("libnvidia-ml.so.1", "nvml-unloadable")]
)
def test_library_that_is_no_library(root, stubs, tmp_path, name, expected):
    """A file by the right name that cannot be loaded is said to be there and unloadable."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / name).write_text("not an ELF file")
    assert [expected] == ids(detect(root, tmp_path / "bad", stubs))


@pytest.mark.usefixtures("no_driver_here")
def test_driver_without_libraries(root):
    """A loaded driver whose libraries no program would find gives both findings, and the kernel's version."""
    node = detect(root)
    assert Driver(version=VERSION, source="/proc/driver/nvidia/version") == node.driver
    assert ["nvml-missing", "libcuda-missing"] == ids(node)


@pytest.mark.usefixtures("no_driver_here")
def test_libraries_the_loader_does_not_know(root):
    """Driver libraries in a folder off the loader's path: the action names the folder."""
    folder = root / "usr/local/nvidia/lib64"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").touch()
    (folder / "libnvidia-ml.so.1").touch()
    actions = {finding.action for finding in detect(root).findings}
    assert {f"add {folder} to LD_LIBRARY_PATH"} == actions


@pytest.mark.usefixtures("no_driver_here")
@pytest.mark.parametrize(("container", "expected"), [(True, "gpu-not-in-container"), (False, "device-files-missing")])
def test_driver_without_device_files(root, container, expected):
    """A kernel driver without device files: a container was started without its GPUs, or nobody made the files."""
    if container:
        (root / ".dockerenv").touch()
    shutil.rmtree(root / "dev")
    assert [expected] == ids(detect(root))[:1]


@pytest.mark.usefixtures("no_driver_here")
def test_hardware_without_driver(tmp_path):
    """A GPU on the bus and no driver is one finding, and the node has NVIDIA hardware."""
    device = tmp_path / "sys/bus/pci/devices/0000:00:06.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200")):
        (device / name).write_text(f"{value}\n")
    node = detect(tmp_path)
    assert ["driver-not-loaded"] == ids(node)
    assert Value(value="0000:00:06.0 10de:2335", source="/sys/bus/pci/devices") == node.nvidia_device


@pytest.mark.usefixtures("no_driver_here")
def test_plain_machine(tmp_path):
    """A machine with nothing of NVIDIA's has nothing to complain about."""
    node = detect(tmp_path)
    assert (None, None, None, None, (), ()) == (
        node.driver,
        node.libcuda,
        node.nvml,
        node.nvidia_device,
        node.gpus,
        node.findings,
    )


def write_nvidia_smi(folder: Path, script: str) -> None:
    """Put an nvidia-smi on PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


ROW = "0, GPU-00000000, NVIDIA H200, 580.159.04, 9.0, 143771, 143156, Disabled, 00000000:00:06.0"


@pytest.mark.usefixtures("no_driver_here")
def test_nvidia_smi_answers_for_nvml(root, tmp_path):
    """Without NVML, nvidia-smi's driver, GPUs and CUDA version are taken."""
    header = "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0 |"
    write_nvidia_smi(tmp_path / "bin", f'case "$*" in *query*) echo "{ROW}";; *) echo "{header}";; esac')
    node = detect(root, path=str(tmp_path / "bin"))
    assert Driver(version=VERSION, source="nvidia-smi") == node.driver
    assert Value(value="13.0", source="nvidia-smi") == node.driver_api
    assert [("NVIDIA H200", "9.0", 143771)] == [
        (gpu.name, gpu.compute_capability, gpu.memory_total_mib) for gpu in node.gpus
    ]


@pytest.mark.usefixtures("no_driver_here")
def test_old_nvidia_smi_without_compute_cap(root, tmp_path):
    """A driver that knows neither compute_cap nor MIG is asked again without them."""
    old = "0, GPU-0, Tesla V100-SXM2-32GB, 470.82.01, 32510, 32480, 00000000:00:04.0"
    refusal = 'Field "compute_cap" is not a valid field to query.'
    write_nvidia_smi(
        tmp_path / "bin",
        f'case "$*" in *compute_cap*) echo \'{refusal}\'; exit 2;; *query*) echo "{old}";; esac',
    )
    node = detect(root, path=str(tmp_path / "bin"))
    assert ("470.82.01", "Tesla V100-SXM2-32GB", None) == (
        node.driver.version,
        node.gpus[0].name,
        node.gpus[0].compute_capability,
    )


def test_nvidia_smi_that_says_mismatch(root, stubs, tmp_path):
    """nvidia-smi's own words are in the evidence."""
    said = "Failed to initialize NVML: Driver/library version mismatch"
    write_nvidia_smi(tmp_path / "bin", f'echo "{said}"; echo "NVML library version: 580.211"; exit 18')
    node = detect(root, stubs, path=str(tmp_path / "bin"), STUB_NVML="18", STUB_CUDA="803")
    assert ["driver-library-mismatch"] == ids(node)
    assert f"nvidia-smi: {said} NVML library version: 580.211" in node.findings[0].evidence


@pytest.mark.usefixtures("no_driver_here")
def test_gpus_from_the_kernel_alone(root):
    """With no library at all the GPUs' names still come from /proc."""
    folder = root / "proc/driver/nvidia/gpus/0000:00:06.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 35\nGPU UUID: \t GPU-????????\n")
    assert (Gpu(name="NVIDIA H200", source="/proc/driver/nvidia/gpus"),) == detect(root).gpus


def test_findings_reach_json(root, stubs):
    """A node with findings goes through JSON and back unchanged but for being described."""
    from dataclasses import replace

    from verl_env.node.describe import read_node_file
    from verl_env.records import to_plain

    node = detect(root, stubs, STUB_CUDA="802")
    assert replace(node, described=True) == read_node_file(json.dumps(to_plain(node)))
