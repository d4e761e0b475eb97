"""Pythons, toolkits, folders, containers and schedulers, on laid-out roots with programs that run."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from verl_env.node import devices, system
from verl_env.node.facts import Folder, Named, Toolkit, Value
from verl_env.node.folders import probe_folders
from verl_env.node.host import Host
from verl_env.node.interpreters import find_interpreters
from verl_env.node.later import Later, map_together
from verl_env.node.probe import probe_node
from verl_env.node.toolkits import find_toolkits

BASE = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def program(path: Path, script: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def host(root: Path, **variables) -> Host:
    """Return a machine with nothing on PATH unless it is said."""
    return Host(root=root, environ={"PATH": "/nonexistent", "HOME": str(root / "home"), **variables}, patience=1.5)


# Pythons


def test_this_python_is_found_and_starts(tmp_path):
    """A Python on PATH is run for its exact version."""
    (found,) = find_interpreters(host(tmp_path, PATH=str(BASE.parent)))[:1]
    expected = ".".join(str(part) for part in sys.version_info[:3])
    starts = {
        one.path: (one.version, one.starts, one.implementation)
        for one in find_interpreters(host(tmp_path, PATH=str(BASE.parent)))
    }
    assert (expected, True, "cpython") == starts[str(BASE)]
    assert "path" == found.kind


def test_headers_are_looked_for(tmp_path):
    """Whether Python.h is there is what the interpreter's own include path says."""
    found = {one.path: one for one in find_interpreters(host(tmp_path, PATH=str(BASE.parent)))}
    expected = (Path(sysconfig.get_path("include", vars={"installed_base": sys.base_prefix})) / "Python.h").exists()
    assert expected == found[str(BASE)].headers


@pytest.mark.parametrize(
    ("folder", "variables", "kind"),
    [
        pytest.param("uv/cpython-3.11.7-linux/bin", {"UV_PYTHON_INSTALL_DIR": "uv"}, "uv", id="uv-named"),
        pytest.param("home/.local/share/uv/python/cpython-3.11.7/bin", {}, "uv", id="uv-default"),
        pytest.param("pyenv/versions/3.11.7/bin", {"PYENV_ROOT": "pyenv"}, "pyenv", id="pyenv-named"),
        pytest.param("opt/pyenv/versions/3.11.7/bin", {}, "pyenv", id="pyenv-opt"),
        pytest.param("home/miniconda3/envs/train/bin", {}, "conda", id="conda-environment"),
        pytest.param("opt/conda/bin", {}, "conda", id="conda-base"),
        pytest.param("prefix/bin", {"CONDA_PREFIX": "prefix"}, "conda", id="conda-active"),
        pytest.param("usr/bin", {}, "system", id="system"),
        pytest.param("opt/python/cp311-cp311/bin", {}, "system", id="manylinux"),
    ],
)
def test_each_place_is_looked_at(tmp_path, folder, variables, kind):
    """A Python is found wherever version managers and distributions put it, and named after them."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "python3").symlink_to(BASE)
    (found,) = find_interpreters(host(tmp_path, **{name: str(tmp_path / value) for name, value in variables.items()}))
    assert (kind, str(BASE), True) == (found.kind, found.path, found.starts)


def test_listed_conda_environments(tmp_path):
    """An environment anywhere is found through conda's own list."""
    (tmp_path / "scratch/env/bin").mkdir(parents=True)
    (tmp_path / "scratch/env/bin/python3").symlink_to(BASE)
    (tmp_path / "home/.conda").mkdir(parents=True)
    (tmp_path / "home/.conda/environments.txt").write_text(f"{tmp_path / 'scratch/env'}\n{tmp_path / 'gone'}\n")
    assert ["conda"] == [one.kind for one in find_interpreters(host(tmp_path))]


def test_one_interpreter_under_many_names(tmp_path):
    """Links and a virtual environment lead to one base interpreter, reported once with its sources."""
    for folder in ("usr/bin", "bin", "venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "python3").symlink_to(BASE)
    (found,) = find_interpreters(host(tmp_path, PATH=f"{tmp_path / 'bin'}:{tmp_path / 'venv/bin'}"))
    assert ("system", "/usr/bin, PATH") == (found.kind, found.source)


def test_virtual_environment_of_copies(tmp_path):
    """A virtual environment made of copies is reported by its base interpreter."""
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    shutil.copy2(BASE, folder / "python3")
    base = tmp_path / "base"
    base.mkdir()
    (base / "python3").symlink_to(BASE)
    (tmp_path / "venv/pyvenv.cfg").write_text(f"home = {base}\nversion = 3.11\n")
    assert [str(BASE)] == [one.path for one in find_interpreters(host(tmp_path, PATH=str(folder)))]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param(
            "echo 'error while loading shared libraries: libpython3.12.so.1.0' >&2; exit 127",
            "error while loading shared libraries: libpython3.12.so.1.0",
            id="no-libpython",
        ),
        pytest.param("exit 1", "ended with status 1 and no word", id="silent"),
        pytest.param("exec /bin/sleep 60", "no answer within 1.5 s", id="hangs"),
        pytest.param("echo 1", "1", id="talks-nonsense"),
        pytest.param("kill -SEGV $$", "ended with status -11 and no word", id="crashes"),
    ],
)
def test_broken_interpreter(tmp_path, script, error):
    """A Python that does not start is listed with what it said."""
    path = program(tmp_path / "bin/python3.12", script)
    (found,) = find_interpreters(host(tmp_path, PATH=str(path.parent)))
    assert (str(path), False, error) == (found.path, found.starts, found.error)


def test_shims_and_old_pythons_are_left_out(tmp_path):
    """A version manager's shim answers for another Python, and one before 3.8 is of no use."""
    program(tmp_path / "shims/python3", 'exec pyenv exec python3 "$@"')
    program(tmp_path / "bin/python3", "echo version=3.6.15")
    assert () == find_interpreters(host(tmp_path, PATH=f"{tmp_path / 'shims'}:{tmp_path / 'bin'}"))


def test_wrapper_script(tmp_path):
    """A script that runs a Python is reported as the Python it runs."""
    program(tmp_path / "bin/python3", f'exec {BASE} "$@"')
    assert [str(BASE)] == [one.path for one in find_interpreters(host(tmp_path, PATH=str(tmp_path / "bin")))]


def test_newest_first_and_broken_last(tmp_path):
    """Order is by version, not by text: 3.10 is newer than 3.9."""
    template = "printf 'version=%s\\nimplementation=cpython\\nmachine=x86_64\\nbase=%s\\nheaders=True\\n' {} $0"
    for version in ("3.9.18", "3.10.13", "3.13.0rc2"):
        program(tmp_path / f"bin/python3.{version.split('.')[1]}", template.format(version))
    program(tmp_path / "bin/python3.14", "exit 1")
    found = find_interpreters(host(tmp_path, PATH=str(tmp_path / "bin")))
    assert ["3.13.0rc2", "3.10.13", "3.9.18", None] == [one.version for one in found]


# Toolkits


def nvcc(folder: Path, version: str) -> Path:
    """Lay out a toolkit whose nvcc says this version."""
    return program(folder / "bin/nvcc", f"echo 'Cuda compilation tools, release {version[:4]}, V{version}'")


def test_version_is_nvccs_and_not_the_folders(tmp_path):
    """A folder named cuda-12.1 with nvcc 12.4 is a 12.4 toolkit, under all its names once."""
    nvcc(tmp_path / "usr/local/cuda-12.1", "12.4.131")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.1")
    local = tmp_path / "usr/local"
    expected = Toolkit(
        path=str(local / "cuda-12.1"), source=f"{local / 'cuda'}, {local / 'cuda-12.1'}", version="12.4.131"
    )
    assert (expected,) == find_toolkits(host(tmp_path))


def test_cuda_home_that_leads_nowhere(tmp_path):
    """A CUDA_HOME such as `:/usr/local/cuda` is shown as what it is."""
    expected = Toolkit(path=":/usr/local/cuda", source="CUDA_HOME", error="no such folder")
    assert (expected,) == find_toolkits(host(tmp_path, CUDA_HOME=":/usr/local/cuda"))


def test_runtime_image_without_nvcc(tmp_path):
    """A toolkit folder without a compiler is listed, and says so."""
    (tmp_path / "usr/local/cuda/lib64").mkdir(parents=True)
    (found,) = find_toolkits(host(tmp_path))
    assert (None, "no bin/nvcc in it") == (found.version, found.error)


def test_nvcc_on_path_that_is_a_script(tmp_path):
    """A wrapper on PATH leads to the toolkit that its nvcc names."""
    real = tmp_path / "opt/toolkit"
    program(
        real / "bin/nvcc",
        'case "$*" in *dryrun*) echo "#\\$ _HERE_=$(dirname "$0")" >&2;; *) echo V13.0.88;; esac',
    )
    program(tmp_path / "bin/nvcc", f'exec {real}/bin/nvcc "$@"')
    (found,) = find_toolkits(host(tmp_path, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin"))
    assert (str(real), "13.0.88") == (found.path, found.version)


def test_broken_nvcc(tmp_path):
    """An nvcc that fails is listed with its words."""
    program(tmp_path / "usr/local/cuda-13.0/bin/nvcc", "echo 'Exec format error' >&2; exit 126")
    assert ["nvcc: Exec format error"] == [one.error for one in find_toolkits(host(tmp_path))]


# Folders


def test_room_of_a_folder_that_is_not_there_yet(tmp_path):
    """The nearest folder above answers for one that is still to be made; nothing is written."""
    (found,) = probe_folders(host(Path("/")), {"environments": tmp_path / "a/b"})
    assert (f"statvfs {tmp_path}", True, None) == (found.source, found.writable, found.error)
    assert found.free_bytes > 0
    assert [] == list(tmp_path.iterdir())


def test_target_that_is_a_file(tmp_path):
    """A target that is a file is not writable, and says why."""
    (tmp_path / "file").touch()
    (found,) = probe_folders(host(Path("/")), {"environments": tmp_path / "file/x"})
    assert (False, f"{tmp_path / 'file'} is not a folder") == (found.writable, found.error)


def test_network_file_system_by_mountinfo(tmp_path):
    """The longest mount above the folder names its file system, spaces in its path included."""
    (tmp_path / "root/proc/self").mkdir(parents=True)
    shared = tmp_path / "shared data"
    shared.mkdir()
    escaped = str(shared).replace(" ", "\\040")
    (tmp_path / "root/proc/self/mountinfo").write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / {escaped} rw,relatime shared:1 - nfs4 server:/x rw\n"
    )
    (found,) = probe_folders(host(tmp_path / "root"), {"environments": shared / "verl"})
    assert ("nfs4", True) == (found.filesystem, found.network)


def test_server_that_does_not_answer(tmp_path, monkeypatch):
    """A stale mount costs the time limit and gives an error, with the file system's kind from mountinfo."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("1 0 0:5 / /stale rw - nfs server:/x rw\n")
    stuck = threading.Event()
    monkeypatch.setattr("verl_env.node.folders.probe_folder", lambda *_: stuck.wait(30))
    (found,) = probe_folders(host(tmp_path), {"cache": Path("/stale/cache")})
    stuck.set()
    expected = Folder(
        role="cache",
        path="/stale/cache",
        source="statvfs",
        filesystem="nfs",
        network=True,
        error="the file system did not answer within 1.5 s",
    )
    assert expected == found


def test_later_gives_up_and_goes_on():
    """A call that does not end costs its limit and no more, and the others' values are kept."""
    started = time.monotonic()
    assert [None, 4] == map_together(lambda item: time.sleep(3) if item is None else item * 2, [None, 2], limit=0.3)
    assert time.monotonic() - started < 2
    with pytest.raises(ZeroDivisionError):
        Later(lambda: 1 // 0).get(1)


# What kind of machine


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        pytest.param({"/.dockerenv": ""}, {}, Named(name="docker", source="/.dockerenv"), id="docker"),
        pytest.param({"/run/.containerenv": ""}, {}, Named(name="podman", source="/run/.containerenv"), id="podman"),
        pytest.param(
            {"/.dockerenv": ""},
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            Named(name="kubernetes", source="KUBERNETES_SERVICE_HOST"),
            id="pod",
        ),
        pytest.param({"/.singularity.d/x": ""}, {}, Named(name="apptainer", source="/.singularity.d"), id="apptainer"),
        pytest.param(
            {"/proc/1/cgroup": "0::/system.slice/docker-0123.scope\n"},
            {},
            Named(name="docker", source="/proc/1/cgroup"),
            id="cgroup",
        ),
        pytest.param({}, {"container": "lxc"}, Named(name="lxc", source="container"), id="variable"),
        pytest.param({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None, id="none"),
    ],
)
def test_container(tmp_path, files, variables, expected):
    """Each runtime leaves its own sign."""
    lay(tmp_path, files)
    assert expected == system.find_container(host(tmp_path, **variables))


def lay(root: Path, files: dict[str, str]) -> None:
    """Write files below a root."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_wsl(tmp_path):
    """Windows' Linux is known by its kernel's name."""
    lay(tmp_path, {"/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"})
    assert Value(value="5.15.153.1-microsoft-standard-WSL2", source="/proc") == system.find_wsl(host(tmp_path))


def test_scheduler_on_path(tmp_path):
    """A login node has srun on PATH."""
    path = program(tmp_path / "bin/srun", "")
    assert Named(name="slurm", source=str(path)) == system.find_scheduler(host(tmp_path, PATH=str(path.parent)))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({"SLURM_JOB_ID": "1"}, "slurm"), ({"LSB_JOBID": "1"}, "lsf"), ({"PBS_JOBID": "1"}, "pbs"), ({}, None)],
)
def test_scheduler_by_variable(tmp_path, variables, expected):
    """A job's own variables name its scheduler."""
    found = system.find_scheduler(host(tmp_path, **variables))
    assert expected == (found.name if found else None)


def test_distribution_and_processor(tmp_path):
    """Both are named as they name themselves."""
    lay(tmp_path, {"/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'})
    lay(
        tmp_path,
        {"/proc/cpuinfo": "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor\n"},
    )
    here = host(tmp_path)
    assert "Ubuntu 22.04.5 LTS" == system.read_distribution(here).value
    assert "Intel(R) Xeon(R) Processor" == system.read_cpu(here).value


def pci(root: Path, address: str, vendor: str, device: str, kind: str) -> None:
    """Put a device on the bus."""
    folder = f"/sys/bus/pci/devices/{address}"
    lay(root, {f"{folder}/vendor": vendor, f"{folder}/device": device, f"{folder}/class": kind})


@pytest.mark.parametrize(
    ("vendor", "device", "kind", "expected"),
    [
        pytest.param("0x1002", "0x74a1", "0x120000", ["AMD GPU"], id="mi300x"),
        pytest.param("0x1002", "0x1638", "0x030000", [], id="amd-integrated"),
        pytest.param("0x1da3", "0x1020", "0x120000", ["Habana Gaudi"], id="gaudi2"),
        pytest.param("0x8086", "0x0bd5", "0x038000", ["Intel GPU"], id="intel-max"),
        pytest.param("0x8086", "0x9a49", "0x030000", [], id="intel-integrated"),
        pytest.param("0x10de", "0x2335", "0x030200", [], id="nvidia"),
    ],
)
def test_other_accelerators(tmp_path, vendor, device, kind, expected):
    """Other vendors' compute cards are named; a processor's own graphics is none."""
    pci(tmp_path, "0000:01:00.0", vendor, device, kind)
    here = host(tmp_path)
    found = devices.find_other_accelerators(here, devices.list_pci(here))
    assert expected == [one.name for one in found]


def test_ascend(tmp_path):
    """An NPU is known by its device files, once for all of them."""
    lay(tmp_path, {"/dev/davinci0": "", "/dev/davinci1": "", "/dev/davinci_manager": ""})
    expected = (Named(name="Huawei Ascend", source="/dev/davinci0"),)
    assert expected == devices.find_other_accelerators(host(tmp_path), ())


def test_nvidia_switch_is_no_gpu(tmp_path):
    """An NVSwitch or a GPU's audio function on the bus is not a GPU."""
    pci(tmp_path, "0000:01:00.0", "0x10de", "0x22a3", "0x068000")
    pci(tmp_path, "0000:02:00.1", "0x10de", "0x22ba", "0x040300")
    here = host(tmp_path)
    assert None is devices.find_nvidia_device(here, devices.list_pci(here))


def test_windows_gpu_of_another_vendor(tmp_path):
    """Under WSL /dev/dxg alone says nothing of NVIDIA; its libcuda beside it does."""
    lay(tmp_path, {"/dev/dxg": "", "/usr/lib/wsl/lib/libd3d12.so": ""})
    assert devices.find_nvidia_device(host(tmp_path), ()) is None
    lay(tmp_path, {"/usr/lib/wsl/lib/libcuda.so.1": ""})
    expected = Value(value="/dev/dxg", source="/usr/lib/wsl/lib/libcuda.so")
    assert expected == devices.find_nvidia_device(host(tmp_path), ())


def test_probe_that_breaks_is_a_finding(tmp_path, monkeypatch):
    """A probe that raises costs its own facts only."""
    monkeypatch.setattr("verl_env.node.probe.find_toolkits", lambda _: 1 // 0)
    node = probe_node(host=host(tmp_path), interpreters=False)
    assert ["probe-failed"] == [finding.id for finding in node.findings if finding.id != "no-glibc"]
    assert node.kernel
