"""Who holds GPU memory and what keeps GPUs apart, through a stub library at the NVML boundary."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verl_env.doctor.look import look
from verl_env.doctor.situation import Situation
from verl_env.node.host import Host
from verl_env.node.probe import probe_node

HERE = Path(__file__).parent
VERSION = "580.159.04"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """Compile both driver libraries, laid out as a driver's."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    folder = tmp_path_factory.mktemp("driver")
    for source, name in (("test_doctor_nvml.c", "libnvidia-ml.so"), ("nvml_stub/cuda.c", "libcuda.so")):
        built = folder / f"{name}.{VERSION}"
        subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", built, HERE / source], check=True)
        (folder / f"{name}.1").symlink_to(built.name)
    return folder


@pytest.fixture
def root(tmp_path):
    """Return the root of a machine with a loaded driver, and this machine's processes."""
    folder = tmp_path / "root"
    (folder / "proc/driver/nvidia").mkdir(parents=True)
    (folder / "proc/driver/nvidia/version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  x\n"
    )
    (folder / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    return folder


def gpu_findings(root, stubs, wrong="", pid=None, patience=10.0, **variables):
    """Look at the GPUs of a machine whose loader finds the stubs."""
    if pid is not None:
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/status").write_text(Path(f"/proc/{pid}/status").read_text())
    environ = {
        "PATH": "/nonexistent",
        "HOME": str(root),
        "LD_LIBRARY_PATH": str(stubs),
        "DOCTOR_NVML": wrong,
        **variables,
    }
    host = Host(root=root, environ=environ, patience=patience)
    situation = Situation(host=host, node=probe_node(host=host, interpreters=False), deep=True)
    return look(situation, ["gpu", "node"], until=time.monotonic() + 30)


def test_idle_gpus(root, stubs):
    """GPUs that are free and reach each other give no finding."""
    assert [] == gpu_findings(root, stubs)


def test_memory_held_by_a_process(root, stubs):
    """A process that holds memory is named, with how much."""
    (finding,) = gpu_findings(root, stubs, f"held {os.getpid()}", pid=os.getpid())
    assert "gpu-memory-held" == finding.id
    assert f"pid {os.getpid()} (" in finding.evidence
    assert "75.2 GB of 150.8 GB used" in finding.evidence


def test_memory_held_by_a_zombie(root, stubs):
    """A process that is dead and not yet reaped is called a zombie; it is real here."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        status = Path(f"/proc/{child.pid}/status")
        while "State:\tZ" not in status.read_text():
            time.sleep(0.01)
        (finding,) = gpu_findings(root, stubs, f"held {child.pid}", pid=child.pid)
    finally:
        child.wait()
    assert ("gpu-zombie", True) == (finding.id, f"pid {child.pid}" in finding.evidence)


def test_memory_of_another_container(root, stubs):
    """A process that cannot be seen here is said to be so, and still holds its memory."""
    (finding,) = gpu_findings(root, stubs, "held 4194000")
    assert ("gpu-memory-held", True) == (finding.id, "not visible here" in finding.evidence)


@pytest.mark.parametrize(
    ("wrong", "expected", "seen"),
    [
        ("unexplained", "gpu-memory-unexplained", "by no process that is seen here"),
        ("exclusive", "gpu-exclusive", "exclusive (process)"),
        ("apart", "p2p-missing", "GPU 0 and 1: topology not supported"),
        ("mig", "mig-nccl", "MIG is enabled on GPU 0, 1"),
    ],
)
def test_what_nvml_says(root, stubs, wrong, expected, seen):
    """Memory without an owner, compute modes, missing peer-to-peer and MIG are findings."""
    found = {finding.id: finding.evidence for finding in gpu_findings(root, stubs, wrong)}
    assert [expected] == list(found)
    assert seen in found[expected]


def test_iommu_between_gpus(root, stubs):
    """Translating IOMMU domains without NVLink and iommu=pt are named."""
    (root / "sys/class/iommu/dmar0").mkdir(parents=True)
    (root / "sys/kernel/iommu_groups/1").mkdir(parents=True)
    (root / "sys/kernel/iommu_groups/1/type").write_text("DMA-FQ\n")
    (root / "proc/cmdline").write_text("quiet\n")
    assert ["iommu-translates"] == [finding.id for finding in gpu_findings(root, stubs)]
    (root / "proc/cmdline").write_text("quiet iommu=pt\n")
    assert [] == gpu_findings(root, stubs)


@pytest.mark.parametrize(
    ("nvml", "cuda", "expected"),
    [("0", "802", "fabric-manager"), ("18", "803", "driver-library-mismatch"), ("999", "999", "nvml-failed")],
)
def test_driver_faults_are_findings_of_doctor(root, stubs, nvml, cuda, expected):
    """What `detect` finds of a driver, doctor tells."""
    found = gpu_findings(root, stubs, STUB_NVML=nvml, STUB_CUDA=cuda)
    assert expected in [finding.id for finding in found]
