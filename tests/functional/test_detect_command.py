"""`verl-env detect` as a user runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "installer"
STUBS = Path(__file__).parent / "nvml_stub"
HEAVY = ("rich", "requests", "packaging.pylock", "pynvml", "tomlkit", "email", "urllib.request")


def verl_env(*words, home, options=(), **variables):
    """Run the command with a home of its own."""
    search = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": search, **variables}
    argv = [sys.executable, *options, "-m", "verl_env", *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_json_of_this_machine(tmp_path):
    """One object on stdout, with every part of a node, and this Python among those found."""
    done = verl_env("detect", "--json", home=tmp_path)
    answer = json.loads(done.stdout)
    assert (0, "detect", "ok", []) == (done.returncode, answer["command"], answer["status"], answer["errors"])
    assert os.uname().machine == answer["data"]["machine"]["value"]
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    assert base in [one["path"] for one in answer["data"]["interpreters"] if one["starts"]]
    assert ["environments", "uv cache"] == [one["role"] for one in answer["data"]["folders"]]


def test_nothing_is_written(tmp_path):
    """Detecting leaves no trace in the home folder."""
    assert 0 == verl_env("detect", home=tmp_path).returncode
    assert [] == list(tmp_path.iterdir())


def test_text_for_people(tmp_path):
    """Without --json the same is grouped text, without colour when it is not a terminal."""
    done = verl_env("detect", home=tmp_path)
    titles = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert {"Driver", "GPUs", "System", "Pythons", "Folders"} <= set(titles)
    assert "\033[" not in done.stdout


def test_no_heavy_imports(tmp_path):
    """Neither rich, requests, packaging.pylock nor anything else that is slow is loaded."""
    done = verl_env("detect", "--json", home=tmp_path, options=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "verl_env.node.probe" in loaded
    assert set() == loaded & set(HEAVY)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """Compile the driver's two libraries into one folder."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    folder = tmp_path_factory.mktemp("driver")
    for source, name in (("nvml.c", "libnvidia-ml.so.1"), ("cuda.c", "libcuda.so.1")):
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, STUBS / source], check=True)
    return folder


def test_h200_as_a_program_would_see_it(tmp_path, stubs):
    """With a driver's libraries on LD_LIBRARY_PATH, the answer is the real H200 node's."""
    done = verl_env("detect", "--json", home=tmp_path, LD_LIBRARY_PATH=str(stubs))
    data = json.loads(done.stdout)["data"]
    (gpu,) = data["gpus"]
    assert ("580.159.04", "13.0") == (data["driver"]["version"], data["libcuda"]["api_version"])
    assert ("NVIDIA H200", "9.0", 143771) == (gpu["name"], gpu["compute_capability"], gpu["memory_total_mib"])


def test_a_broken_driver_is_an_answer(tmp_path, stubs):
    """A crashing NVML leaves exit code 0, one finding, and no traceback."""
    done = verl_env("detect", "--json", home=tmp_path, LD_LIBRARY_PATH=str(stubs), STUB_NVML="crash")
    assert (0, "") == (done.returncode, done.stderr)
    assert ["nvml-crashed"] == [finding["id"] for finding in json.loads(done.stdout)["data"]["findings"]]


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        pytest.param(("--driver", "banana"), {}, id="driver"),
        pytest.param((), {"VERL_ENV_DRIVER": "banana"}, id="variable"),
        pytest.param(("--node", "no/such/file"), {}, id="file"),
        pytest.param(("--arch", "sparc"), {}, id="architecture"),
        pytest.param(("--gpu", "banana"), {}, id="gpu"),
    ],
)
def test_usage_errors(tmp_path, words, variables):
    """What cannot be understood is one line of what, one hint, and exit code 2; in JSON as well."""
    done = verl_env("detect", "--json", *words, home=tmp_path, **variables)
    answer = json.loads(done.stdout)
    assert (2, 2, "error") == (done.returncode, answer["exit_code"], answer["status"])
    (error,) = answer["errors"]
    assert error["hint"]
    assert "Traceback" not in done.stderr


def test_described_gpu_by_name(tmp_path):
    """A GPU by name gets its compute capability from the matrix."""
    done = verl_env("detect", "--json", "--driver", "550.54.15", "--gpu", "2xa100", home=tmp_path)
    assert ["8.0", "8.0"] == [gpu["compute_capability"] for gpu in json.loads(done.stdout)["data"]["gpus"]]


def test_node_file_goes_round(tmp_path):
    """What detect printed on one machine describes it on another."""
    first = verl_env("detect", "--json", home=tmp_path)
    (tmp_path / "node.json").write_text(first.stdout)
    again = verl_env("detect", "--json", "--node", str(tmp_path / "node.json"), home=tmp_path)
    expected = json.loads(first.stdout)["data"] | {"described": True}
    assert expected == json.loads(again.stdout)["data"]
