"""Faults of a machine that are really there: in mount and process namespaces, in a cgroup, in a damaged environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from doctored import (
    distribution,
    doctor,
    doctor_within,
    ids,
    in_group,
    in_mounts,
    made_venv,
    memory_group,
    of,
    said_by_venv,
)
from verl_env.doctor.check_room import limit_files

# room


def test_small_shared_memory(tool):
    """The 64 MB of a container that was started without --shm-size are named."""
    done = doctor_within(tool, in_mounts("mount -t tmpfs -o size=64m none /dev/shm"), "--only", "room")
    assert "/dev/shm has 67.1 MB in all" == of(done, "shm-small")["evidence"]


def test_full_shared_memory(tool):
    """Shared memory that dead processes left full is named with what is free."""
    available = next(it for it in Path("/proc/meminfo").read_text().splitlines() if it.startswith("MemAvailable"))
    if int(available.split()[1]) < 4 << 20:
        pytest.skip("a gigabyte of memory is needed for that")
    script = "mount -t tmpfs -o size=1000m none /dev/shm; fallocate -l 950m /dev/shm/left-over"
    done = doctor_within(tool, in_mounts(script), "--only", "room")
    assert "/dev/shm: 52.4 MB of 1.0 GB free" == of(done, "shm-full")["evidence"]


def test_no_inodes_left(tool, tmp_path):
    """A temporary folder with room and without inodes is named."""
    script = f"mount -t tmpfs -o size=3g,nr_inodes=100 none {tmp_path}"
    done = doctor_within(tool, in_mounts(script), "--only", "room", TMPDIR=str(tmp_path))
    assert f"{tmp_path}: 99 inodes free" == of(done, "tmp-full")["evidence"]


def test_home_that_is_read_only(tool, tmp_path):
    """A folder of environments on a file system that is read-only cannot be used."""
    words = in_mounts(f"mount -t tmpfs -o ro none {tmp_path}")
    done = doctor_within(tool, words, "--only", "room", VERL_ENV_HOME=str(tmp_path))
    assert (
        f"{tmp_path}/environments: it cannot be written (statvfs {tmp_path})" == of(done, "home-unusable")["evidence"]
    )


def test_memory_of_a_group(tool):
    """A group that allows much less than the machine has is named, also for a group inside of it."""
    with memory_group(200_000_000) as group:
        (group / "inner").mkdir()
        for folder in (group, group / "inner"):
            finding = of(doctor_within(tool, in_group(folder), "--only", "room"), "cgroup-memory")
            assert finding["evidence"].startswith("cgroup: 200.0 MB; the machine has ")
        (group / "inner").rmdir()


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param("0::/\n", ["/sys/fs/cgroup/memory.max"], id="container"),
        pytest.param(
            "0::/pod/box\n",
            [f"/sys/fs/cgroup{it}/memory.max" for it in ("/pod/box", "/pod", "")],
            id="the-pod-limits-too",
        ),
        pytest.param(
            "9:cpu,cpuacct:/a\n4:memory:/slurm/job\n",
            [f"/sys/fs/cgroup/memory{it}/memory.limit_in_bytes" for it in ("/slurm/job", "/slurm", "")],
            id="version-1",
        ),
        pytest.param("", [], id="none"),
    ],
)
def test_where_limits_are(own, expected):
    """The group's own limit counts, and that of each group above it."""
    assert expected == limit_files(own)


# what compiles


def test_headers_that_are_missing(tool):
    """A system's Python without its -dev package has no Python.h."""
    include = sysconfig.get_path("include", vars={"installed_base": sys.base_prefix})
    words = in_mounts(f"mkdir -p {include}; mount -t tmpfs none {include}")
    done = doctor_within(tool, words, sys.executable, "--only", "build")
    assert f"no {include}/Python.h" in of(done, "python-headers")["evidence"]


def kernels(tmp_path):
    """Lay out an environment that compiles kernels, for a CUDA that no machine has."""
    folder = made_venv(tmp_path, said_by_venv())
    distribution(folder, "torch", "2.11.0+cu119")
    distribution(folder, "flashinfer-python", "0.6.12")
    return folder


def test_nothing_to_compile_kernels_with(tool, tmp_path):
    """flashinfer without ninja and nvcc is told that both are missing."""
    done = doctor(tool, kernels(tmp_path), "--only", "build", PATH=str(tmp_path))
    assert "flashinfer-python 0.6.12 is installed" in of(done, "no-ninja")["evidence"]
    assert "torch is built for CUDA 11.9; toolkits here: " in of(done, "cuda-home-missing")["evidence"]


def test_toolkit_of_another_cuda(tool, tmp_path):
    """A CUDA_HOME whose nvcc is of another minor than torch is named with both."""
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    nvcc.chmod(0o755)
    done = doctor(tool, kernels(tmp_path), "--only", "shell", CUDA_HOME=str(tmp_path / "cuda"))
    assert (
        f"CUDA_HOME=`{tmp_path}/cuda` is CUDA 12.8.93; torch is built for 11.9"
        == of(done, "cuda-home-other")["evidence"]
    )


# an environment after its installation


@pytest.fixture
def environment(tiny):
    """Install the tiny row, and return its folder."""
    done = tiny("install", "--cpu")
    assert 0 == done.code, done.err
    return tiny.current.resolve()


def test_what_became_of_an_environment(tiny, environment):
    """An edited file, another Python and another machine are each named; before that, nothing is."""
    assert [] == ids(doctor(tiny, "--only", "environment"))
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    finding = of(doctor(tiny, "--only", "environment", "--arch", other), "row-does-not-fit")
    assert f"tiny: made for {os.uname().machine}; this node is {other}" == finding["evidence"]
    module = next(environment.glob("lib/python3*/site-packages/verl/__init__.py"))
    module.unlink()
    module.write_text("changed = True\n")
    assert "verl/__init__.py" in of(doctor(tiny, "--only", "environment"), "environment-damaged")["evidence"]
    receipt = environment / "verl-env-receipt.json"
    built_with = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**built_with, "python": "3.8.2"}))
    assert (
        "the environment was built with 3.8.2"
        in of(doctor(tiny, "--only", "environment"), "python-changed")["evidence"]
    )


# Ray


def test_container_that_ends_with_ray_start(tool):
    """`ray start` as first process, without --block, is named; with it nothing is."""
    namespace = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a process namespace")
    for flag, expected in ("--verbose", True), ("--block", False):
        words = [*namespace, "sh", "-c", 'shift; "$@"; exit $?', "ray start --head", flag]
        done = doctor_within(tool, words, "--only", "ray", KUBERNETES_SERVICE_HOST="10.0.0.1")
        assert expected == ("ray-no-block" in ids(done))
