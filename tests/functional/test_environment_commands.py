"""`env`, `run` and `smoke` on an environment that is installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from io import StringIO

import pytest
from dotenv import dotenv_values

FOLDER_NAMES = ("VIRTUAL_ENV", "PATH", "HF_HOME", "PYTHONNOUSERSITE", "TINY_ODD", "TINY_EMPTY")


def values_of(tool, **more):
    """Return the variables as `env --format json` gives them."""
    done = tool("env", "--format", "json", **more)
    assert 0 == done.code, done.err
    return json.loads(done.out)


def test_values_name_the_environments_own_folder(installed):
    """A running job keeps what it started with: never `current`, always the folder itself."""
    values = values_of(installed)
    folder = str(installed.current.resolve())
    assert folder == values["VIRTUAL_ENV"]
    assert f"{folder}/bin" == values["PATH"].split(":")[0]
    assert not [value for value in values.values() if "/current" in value]


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox sh", "zsh", "ksh", "fish"])
def test_shells_read_the_same_values(installed, shell):
    """Evaluated in a real shell, `env` gives every value as JSON does, and takes away what must go."""
    words = shell.split()
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not here")
    form = "fish" if shell == "fish" else "sh"
    text = installed("env", "--format", form).out
    environ = {
        "PATH": installed.variables()["PATH"],
        "HOME": str(installed.home),
        "PYTHONPATH": "/evil",
        "PYTHONHOME": "/evil",
    }
    program = [shutil.which(words[0]), *words[1:], "-c", f"{text}\nenv -0"]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    expected = values_of(installed)
    assert {name: expected[name] for name in expected} == {name: found.get(name) for name in expected}
    assert not {"PYTHONPATH", "PYTHONHOME"} & found.keys()


def test_exports_file_beside_the_environment(installed):
    """The file for shells that do not run verl-env says what the command says."""
    folder = installed.current.resolve()
    assert installed("env").out == (folder / "exports.sh").read_text()
    assert installed("env", "--format", "fish").out == (folder / "exports.fish").read_text()


def test_dotenv_readers_get_the_same_values(installed):
    """python-dotenv reads every value as JSON gives it."""
    text = installed("env", "--format", "dotenv").out
    expected = values_of(installed)
    found = dotenv_values(stream=StringIO(text), interpolate=False)
    assert expected == {name: found[name] for name in expected}


def test_a_kernel_for_notebooks(installed, tmp_path):
    """It starts the environment's own Python with its variables; a dry run writes nothing, a second run changes nothing."""
    where = {"JUPYTER_DATA_DIR": str(tmp_path / "jupyter")}
    file = tmp_path / "jupyter/kernels/verl/kernel.json"
    dry = installed("env", "--kernel", "verl", "--dry-run", "--json", **where).json["data"]
    assert (str(file), False, False) == (dry["kernel"]["file"], dry["changed"], file.exists())
    done = installed("env", "--kernel", "verl", **where)
    assert (0, True) == (done.code, "ipykernel is not in the environment" in done.err), done.err
    spec = json.loads(file.read_text())
    folder = installed.current.resolve()
    assert [f"{folder}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"] == spec["argv"]
    assert dry["kernel"]["spec"] == spec
    assert (f"{folder}/bin:${{PATH}}", "") == (spec["env"]["PATH"], spec["env"]["PYTHONPATH"])
    assert ["kernel.json"] == os.listdir(file.parent)
    assert "is as it was" in installed("env", "--kernel", "verl", **where).out


@pytest.mark.parametrize(("words", "said"), [(["../up"], "no name for a kernel"), (["theirs"], "did not make it")])
def test_a_kernel_of_somebody_else_is_left_alone(installed, tmp_path, words, said):
    """A name that leads elsewhere, or that another kernel has, is refused, and nothing is changed."""
    theirs = tmp_path / "jupyter/kernels/theirs/kernel.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"argv": ["python"]}')
    done = installed("env", "--kernel", *words, JUPYTER_DATA_DIR=str(tmp_path / "jupyter"))
    assert (2, True) == (done.code, said in done.err), done.err
    assert ('{"argv": ["python"]}', ["theirs"]) == (theirs.read_text(), os.listdir(tmp_path / "jupyter/kernels"))


def test_a_dry_run_of_nothing(installed):
    """Printing writes nothing, and has no dry run."""
    assert 2 == installed("env", "--dry-run").code


def test_a_job_script_and_rays_workers(installed):
    """Slurm's form is a script that srun passes on; Ray's names the environment's Python."""
    folder = installed.current.resolve()
    assert "export SLURM_EXPORT_ENV=ALL\n" in installed("env", "--format", "slurm").out
    spec = json.loads(installed("env", "--format", "ray").out)
    assert f"{folder}/bin/python" == spec["py_executable"].split()[-1]
    assert f"{folder}/bin:${{PATH}}" == spec["env_vars"]["PATH"]


def test_json_envelope_of_env(installed):
    """`env --json` has each export with how and why, and the values."""
    data = installed("env", "--json").json["data"]
    assert set(FOLDER_NAMES) <= data["values"].keys()
    assert all(it["why"] for it in data["exports"])
    assert {"set", "prepend", "unset", "default"} == {it["how"] for it in data["exports"]}


@pytest.mark.parametrize("code", [0, 1, 42])
def test_run_gives_the_programs_own_code(installed, code):
    """The exit code is the program's, and its arguments reach it as they are."""
    done = installed("run", "--", "look", "--json", "-v", "a b", "*", "--", LOOK_EXIT=str(code))
    assert code == done.code, done.err
    assert ["--json", "-v", "a b", "*", "--"] == done.json["argv"]
    assert "" == done.err


def test_run_seals_the_environment(installed, tmp_path):
    """The program sees the exports, and no PYTHONPATH, user site, pip or uv setting of the caller's."""
    leaks = {"VIRTUAL_ENV": "/evil", "PIP_INDEX_URL": "x", "UV_INDEX_URL": "x", "CONDA_PREFIX": "/evil"}
    search = os.pathsep.join([installed.variables()["PYTHONPATH"], str(tmp_path)])
    seen = installed("run", "--", "look", **leaks, PYTHONPATH=search, KEPT="kept").json
    assert {name: value for name, value in values_of(installed).items() if name != "PATH"} == {
        name: seen["env"].get(name) for name in values_of(installed) if name != "PATH"
    }
    assert {"PYTHONPATH", "PYTHONHOME", "PIP_INDEX_URL", "UV_INDEX_URL", "CONDA_PREFIX"}.isdisjoint(seen["env"])
    assert ("kept", str(installed.current.resolve())) == (seen["env"]["KEPT"], seen["prefix"])
    assert str(tmp_path) not in seen["path"]


def test_run_takes_the_place_of_the_process(installed):
    """Signals reach the program itself: it is the same process."""
    child = installed.start(
        "run", "--", "python", "-c", "import os; print(os.getpid(), flush=True); import time; time.sleep(1000)"
    )
    assert str(child.pid) == child.stdout.readline().strip()
    os.kill(child.pid, signal.SIGTERM)
    assert -signal.SIGTERM == installed.finish(child).code


def test_run_finds_the_environments_python_first(installed):
    """`python` is the environment's own, with its packages."""
    done = installed("run", "python", "-c", "import sys, verl; print(sys.prefix, verl.__version__)")
    assert f"{installed.current.resolve()} 99.0\n" == done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["run"], "no program was named", id="none"),
        pytest.param(["run", "--", "no-such-program"], "no program `no-such-program`", id="unknown"),
        pytest.param(["run", "-e", "nope", "--", "true"], "no environment is called `nope`", id="environment"),
        pytest.param(["env", "nope"], "no environment is called `nope`", id="env"),
        pytest.param(["env", "/nowhere"], "`/nowhere` is not a complete environment", id="a folder"),
    ],
)
def test_what_is_not_there(installed, words, said):
    """One line, a hint, a code of its own; the names of what is there."""
    done = installed(*words)
    assert done.code in (2, 12)
    assert said in done.err
    assert "hint: " in done.err
    assert ("nope" in words) == ("  tiny-" in done.err)


@pytest.mark.parametrize("start", [4, 8, None], ids=["start of its name", "more of it", "whole"])
def test_an_environment_by_name(installed, start):
    """An environment may be named by the start of its name, or by its folder."""
    folder = installed.current.resolve()
    assert folder.name == installed("env", "--json", folder.name[:start]).json["data"]["environment"]
    assert folder.name == installed("env", "--json", str(folder)).json["data"]["environment"]


def test_smoke_again(installed):
    """Every import of the lock passes again; each is in the answer with its log."""
    done = installed("smoke", "--json", "--level", "imports")
    assert 0 == done.code, done.err
    runs = done.json["data"]["runs"]
    assert [("imports", "torch", True), ("imports", "verl", True)] == [
        (it["level"], it["name"], it["passed"]) for it in runs
    ]
    assert all(os.path.isfile(it["log"]) for it in runs)


def test_smoke_finds_what_broke(tiny):
    """A file that went missing after the installation fails the smoke imports by name: code 7, `current` stays."""
    assert 0 == tiny("install", "--cpu").code
    (module,) = tiny.current.resolve().glob("lib/*/site-packages/verl/__init__.py")
    module.rename(module.with_name("gone"))
    module.write_text("import nowhere\n")
    done = tiny("smoke", "--json", "--level", "imports")
    (error,) = done.json["errors"]
    assert (7, "smoke") == (done.code, error["code"])
    assert "No module named 'nowhere'" in "\n".join(error["details"])
    assert tiny.current.exists()
