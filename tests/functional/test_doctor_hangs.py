"""What hangs for good, for real: doctor, in haste, ends by itself and says what was late.

No test measures time: what hangs here never ends, so that a limit ended it, and the finding says which.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from doctored import ids, made_venv, with_dead_folder
from tiny import Done
from verl_env.commands.doctor import _BUDGET, _NODES_PART, _PATIENCE
from verl_env.doctor.look import in_haste
from verl_env.node.host import Host
from verl_env.node.probe import probe_node

STUBS = Path(__file__).parent / "nvml_stub"
VERSION = "580.159.04"


def late(done):
    """Return the evidence of what was late, by the word before the colon."""
    found = [it["evidence"] for it in done.json["data"]["findings"] if it["id"] == "probe-timed-out"]
    return {it.partition(":")[0]: it.partition(": ")[2] for it in found}


def hanging(path):
    """Write a program that does not end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexec sleep 86400\n")
    path.chmod(0o755)
    return path.parent


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """Compile both driver libraries."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    folder = tmp_path_factory.mktemp("driver")
    for source, name in (("nvml.c", "libnvidia-ml.so"), ("cuda.c", "libcuda.so")):
        built = folder / f"{name}.{VERSION}"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", built, STUBS / source], check=True)
        (folder / f"{name}.1").symlink_to(built.name)
    return folder


@pytest.mark.parametrize(("variable", "library"), [("STUB_NVML", "NVML"), ("STUB_CUDA", "libcuda")])
def test_driver_library(tool, stubs, variable, library):
    """A driver library that hangs is late, and no more is said in haste."""
    variables = {"LD_LIBRARY_PATH": str(stubs), variable: "hang"}
    done = tool("doctor", "--json", "--only", "node", **variables)
    found = [it for it in done.json["data"]["findings"] if it["id"] == "probe-timed-out"]
    assert any(f"{library} did not answer within" in it["evidence"] for it in found) or "node" in late(done)
    assert all("--deep" in it["action"] for it in found)
    assert not [name for name in ids(done) if name.endswith("-hung")]


def test_nvidia_smi(tmp_path, stubs):
    """An nvidia-smi that hangs costs what is left of the time, and its silence is evidence."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(f"NVRM version: Module  {VERSION}  x\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    environ = {"PATH": f"{hanging(tmp_path / 'bin/nvidia-smi')}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(stubs)}
    host = Host(root=tmp_path, environ=environ | {"STUB_NVML": "999"}, patience=8)
    node = probe_node(host=host, interpreters=False, limit=2)
    (finding,) = node.findings
    assert ("nvml-failed", True) == (finding.id, "nvidia-smi did not answer within" in finding.evidence)


def test_nvidia_smi_alone(tmp_path):
    """Where nothing else is there to blame, the silence of nvidia-smi is the finding."""
    environ = {"PATH": f"{hanging(tmp_path / 'bin/nvidia-smi')}:/usr/bin:/bin"}
    node = probe_node(host=Host(root=tmp_path, environ=environ, patience=8), interpreters=False, limit=2)
    if node.nvml:
        pytest.skip("NVML answers here, so that nvidia-smi is not asked")
    (finding,) = node.findings
    assert ("probe-timed-out", True) == (finding.id, "nvidia-smi did not answer within" in finding.evidence)


def test_compiler(tool, tmp_path):
    """A compiler that hangs is late."""
    path = f"{hanging(tmp_path / 'bin/gcc')}:/usr/bin:/bin"
    done = tool("doctor", "--json", "--only", "build", PATH=path)
    assert "build" in late(done)


def test_python_of_the_environment(tool, tmp_path):
    """A Python that hangs is late, and not called broken."""
    folder = made_venv(tmp_path, "", "exec sleep 86400")
    done = tool("doctor", "--json", folder, "--only", "environment")
    assert "environment" in late(done)
    assert "environment-broken" not in ids(done)


@pytest.mark.parametrize(
    ("variable", "area", "expected"),
    [
        ("HF_HOME", "huggingface", "probe-timed-out"),
        ("TMPDIR", "room", "probe-timed-out"),
        ("RAY_TMPDIR", "ray", "probe-timed-out"),
        ("CUDA_HOME", "shell", "probe-timed-out"),
        ("VERL_ENV_HOME", "room", "home-unusable"),
        ("HOME", "shell", "probe-timed-out"),
    ],
)
def test_dead_file_system(tool, tmp_path, variable, area, expected):
    """A folder whose server is gone costs its area, whichever variable leads there."""
    dead = tmp_path / "dead"
    dead.mkdir()
    argv = [*with_dead_folder(dead), sys.executable, "-m", "verl_env", "doctor", "--json", "--only", area]
    variables = tool.variables(**{"HOME": str(tool.home), variable: str(dead / "deeper")})
    child = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    done = Done(child.returncode, child.stdout, child.stderr)
    found = {it["id"]: it["evidence"] for it in done.json["data"]["findings"]}
    assert "did not answer" in found[expected]


@pytest.fixture
def silent():
    """Return the port of a server that accepts, and never answers."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def test_ray_head(tool, silent):
    """A head that accepts and says nothing is no head that answers; joining it is not tried."""
    address = f"127.0.0.1:{silent}"
    for words in ((), ("--deep",), ("--ray", address)):
        done = tool("doctor", "--json", "--only", "ray", *words, RAY_ADDRESS=address, RAY_TMPDIR=str(tool.work))
        assert "ray-unreachable" in ids(done) or (not words and "ray" in late(done))


def test_hub(tool, silent):
    """A hub that accepts and says nothing is out of reach."""
    endpoint = f"http://127.0.0.1:{silent}"
    asked = ("doctor", "--json", "--only", "gpu", "--hf-model", "a/b")
    for words in ((), ("--deep",)):
        done = tool(*asked, *words, HF_ENDPOINT=endpoint, HF_HOME=str(tool.work))
        assert ["hf-unreachable"] == ids(done) or (not words and "huggingface" in late(done))


def test_all_limits_together():
    """Everything that doctor waits for in haste ends within its budget, which leaves start-up a part of two seconds."""
    assert _PATIENCE < _NODES_PART * _BUDGET < _BUDGET <= 1.5


def test_haste_takes_back_what_only_patience_can_know(tmp_path, stubs):
    """With patience a library that hangs is said to hang."""
    host = Host(root=tmp_path, environ={"LD_LIBRARY_PATH": str(stubs), "STUB_NVML": "hang"}, patience=1)
    found = {it.id: it for it in probe_node(host=host, interpreters=False).findings}
    assert "probe-timed-out" == in_haste(found["nvml-hung"]).id
    other = replace(found["nvml-hung"], id="nvml-failed")
    assert other == in_haste(other)


def test_nothing_is_left_behind(tool, tmp_path):
    """What hung is ended with everything that it started."""
    folder = made_venv(tmp_path, "", f"sleep 86399 & echo $! > {tmp_path}/pid; wait")
    tool("doctor", "--json", folder, "--only", "environment")
    pid = int((tmp_path / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        assert "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
