"""Exports of arbitrary text survive real shells, and are undone by them: one batched call a shell, `env -0` between."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
from io import StringIO

import pytest
from dotenv import dotenv_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_env.environment.activation import Activation, activation_of, values_of
from verl_env.environment.exports import Export
from verl_env.environment.jupyter_kernel import kernel_of
from verl_env.environment.shells import render_exports

SHELLS = ["dash", "bash", "zsh", "ksh", "busybox", "fish"]
# Whatever an operating system takes as a variable's value.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
VALUES = st.lists(st.one_of(TEXT, st.text("'\"$`\\\n !#~*?;&|<>(){}[]=%é", max_size=12)), min_size=1, max_size=60)
OTHER = "/usr/bin:/bin"
HOWS = ("set", "set", "default", "prepend", "unset", "default")
MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def exports_for(values):
    """Return one export a value, each in its turn of another kind; a part of a list holds no colon."""
    return tuple(
        Export(name=f"V{number}", value=value.replace(":", ""), how=how, why="")
        if (how := HOWS[number % len(HOWS)]) != "prepend" or value.replace(":", "")
        else Export(name=f"V{number}", value="x", how="set", why="")
        for number, value in enumerate(values)
    )


def before(exports):
    """Return what the variables hold before: something, nothing, or the very value that is put in front."""
    found = {}
    for number, it in enumerate(exports):
        if number % 2:
            found[it.name] = f"/old:{it.value}:/older" if it.how == "prepend" else "it was\n'set' to $this"
        elif number % 5 == 0:
            found[it.name] = ""
    return found


def activation(exports, environ):
    return Activation(folder="/envs/it's $one", exports=exports, environ=environ)


def program_of(shell):
    """Return how to start a shell, or skip aloud."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here")
    words = {"busybox": ["sh"], "fish": ["--no-config"], "zsh": ["-f"]}.get(shell, [])
    return [shutil.which(shell), *words]


# fish writes to its HOME, whatever it was told: one that is not there would be made.
HOME = tempfile.TemporaryDirectory(prefix="verl-env-home-")


def through(program, text, environ):
    """Return the variables, each time that `env -0` ran in a shell, without those of the shell itself."""
    done = subprocess.run(
        [*program, "-c", text],
        env={"PATH": OTHER, "HOME": HOME.name, "LC_ALL": "C.UTF-8", **environ},
        capture_output=True,
        check=False,
    )
    assert (b"", 0) == (done.stderr, done.returncode)
    return [
        dict(line.split("=", 1) for line in part.split("\0") if "=" in line)
        for part in done.stdout.decode().split("END\0")[:-1]
    ]


SHOW = "\nenv -0; printf 'END\\0'\n"


def only(names, variables):
    return {name: variables.get(name) for name in names}


@pytest.mark.parametrize("shell", SHELLS)
@MANY
@given(values=VALUES)
def test_any_text_survives_a_shell_and_is_undone(shell, values):
    """Every shell gives the values that JSON gives, as often as it is asked; `deactivate` gives back what was there."""
    program = program_of(shell)
    exports = exports_for(values)
    environ = before(exports)
    it = activation(exports, environ)
    text = render_exports(it, "fish" if shell == "fish" else "sh")
    once, twice, after = through(program, f"{text}{SHOW}{text}{SHOW}deactivate{SHOW}", environ)
    names = [it.name for it in exports]
    assert only(names, values_of(it)) == only(names, once)
    assert once == twice
    assert only(names, environ) == only(names, after)


@pytest.mark.parametrize("shell", SHELLS)
def test_undoing_leaves_nothing(shell, tmp_path):
    """After `deactivate` neither a function nor a variable of ours is left, exported or not."""
    program = program_of(shell)
    it = activation((Export(name="PATH", value="/x", how="prepend", why=""),), {})
    text = render_exports(
        Activation(folder="/x", exports=it.exports, owned=("libcudart.so",), environ={}),
        "fish" if shell == "fish" else "sh",
    )
    listing = "set; functions" if shell == "fish" else "set; typeset -f 2>/dev/null || :"
    script = tmp_path / "script"
    script.write_text(f"{text}\ndeactivate\n{listing}\n")
    done = subprocess.run([*program, script], env={"PATH": OTHER}, capture_output=True, text=True, check=True)
    left = [line for line in done.stdout.splitlines() if "verl_env" in line.lower() or line.startswith("deactivate")]
    assert [] == left


@pytest.mark.parametrize("shell", SHELLS)
def test_another_one_takes_its_place(shell):
    """Reading another environment's script undoes the first one's; a child shell that reads it again changes nothing."""
    program = program_of(shell)
    form = "fish" if shell == "fish" else "sh"
    one = render_exports(activation((Export(name="PATH", value="/one/bin", how="prepend", why=""),), {}), form)
    two = render_exports(activation((Export(name="PATH", value="/two/bin", how="prepend", why=""),), {}), form)
    first, second = through(program, f"{one}{two}{SHOW}deactivate{SHOW}", {})
    assert (f"/two/bin:{OTHER}", OTHER) == (first["PATH"], second["PATH"])
    (child,) = through(program, f"{one}{SHOW}", {"PATH": f"/one/bin:{OTHER}"})
    assert f"/one/bin:{OTHER}" == child["PATH"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_beside_somebodys_virtual_environment(shell, tmp_path):
    """One that is active is left first, as its own kind do; one over ours hides `deactivate`, and reading ours mends it."""
    program = program_of(shell)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "theirs"], check=True)
    fish = shell == "fish"
    theirs = f"source {tmp_path}/theirs/bin/activate{'.fish' if fish else ''}\n"
    exports = (
        Export(name="VIRTUAL_ENV", value="/ours", how="set", why=""),
        Export(name="PATH", value="/ours/bin", how="prepend", why=""),
    )
    ours = render_exports(activation(exports, {}), "fish" if fish else "sh")
    over, left = through(program, f"{theirs}{ours}{SHOW}deactivate{SHOW}", {})
    assert ("/ours", f"/ours/bin:{OTHER}") == (over["VIRTUAL_ENV"], over["PATH"])
    assert (False, OTHER) == ("VIRTUAL_ENV" in left, left["PATH"])
    hidden, back, left = through(program, f"{ours}{theirs}{SHOW}{ours}{SHOW}deactivate{SHOW}", {})
    assert (f"{tmp_path}/theirs", f"{tmp_path}/theirs/bin:/ours/bin:{OTHER}") == (hidden["VIRTUAL_ENV"], hidden["PATH"])
    assert ("/ours", f"/ours/bin:{OTHER}") == (back["VIRTUAL_ENV"], back["PATH"])
    assert (False, OTHER) == ("VIRTUAL_ENV" in left, left["PATH"])


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "ksh", "busybox"])
def test_scripts_that_are_strict(shell):
    """A job script may have `set -eu`: nothing is unset when it is read, and nothing fails."""
    program = program_of(shell)
    it = activation(
        (Export(name="V", value="1", how="set", why=""), Export(name="W", value="2", how="default", why="")), {}
    )
    sealed = Activation(folder="/x", exports=it.exports, owned=("libcudart.so",), environ={})
    text = render_exports(sealed, "slurm")
    seen, after = through(program, f"set -eu\n{text}{SHOW}deactivate{SHOW}", {})
    assert ("1", "2", "ALL") == (seen["V"], seen["W"], seen["SLURM_EXPORT_ENV"])
    assert {"V", "W", "SLURM_EXPORT_ENV"}.isdisjoint(after)


def is_agreed(value):
    """Whether all readers of dotenv read a value alike: see `_dotenv_line`."""
    return not value.endswith("\\") and not ("\r" in value and "$" in value)


@settings(max_examples=100, deadline=None)
@given(values=VALUES)
def test_any_text_survives_dotenv(tmp_path_factory, values):
    """python-dotenv gives the values that JSON gives, from a file; what no reader could is a comment that says so."""
    it = activation(exports_for(values), before(exports_for(values)))
    text = render_exports(it, "dotenv")
    path = tmp_path_factory.getbasetemp() / "all.env"
    path.write_text(text, newline="")
    wanted = values_of(it)
    assert {name: value for name, value in wanted.items() if is_agreed(value)} == dotenv_values(path, interpolate=False)
    unsaid = [name for name, value in wanted.items() if not is_agreed(value) and f"# {name} has" not in text]
    assert [] == unsaid
    assert dotenv_values(stream=StringIO(text), interpolate=False).keys() <= wanted.keys()


def ray_worker(spec, environ):
    """Return the variables that Ray's worker starts with: as ray/_private/utils.py and runtime_env/context.py do it."""
    import re
    from unittest.mock import patch

    with patch.dict(os.environ, environ, clear=True):
        for name, value in sorted(spec["env_vars"].items()):
            os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
        variables = dict(os.environ)
    command = f"exec {spec['py_executable']} -c 'import os, json; print(json.dumps(dict(os.environ)))'"
    done = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@MANY
@given(values=VALUES)
def test_any_text_survives_ray(tmp_path_factory, values):
    """A Ray worker has the values that JSON gives, whatever of them Ray would expand; its Python is the environment's."""
    folder = tmp_path_factory.getbasetemp() / "an environment's"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    if not (folder / "bin/python").exists():
        (folder / "bin/python").symlink_to(sys.executable)
    exports = tuple(it for it in exports_for(values) if it.how != "unset")
    environ = {"PATH": OTHER, **{it.name: "/old" for it in exports if it.how == "prepend"}}
    spec = json.loads(render_exports(Activation(folder=str(folder), exports=exports, environ=environ), "ray"))
    wanted = values_of(Activation(folder=str(folder), exports=exports, environ=environ))
    seen = ray_worker(spec, environ)
    assert wanted == only(wanted, seen)
    assert str(folder / "bin/python") == shlex.split(spec["py_executable"])[-1]


@MANY
@given(values=VALUES)
def test_any_text_survives_a_kernel(tmp_path_factory, values):
    """Jupyter's substitution (string.Template, as jupyter_client has it) gives the values that JSON gives."""
    exports = tuple(it for it in exports_for(values) if it.how != "unset")
    environ = {it.name: "/old" for it in exports if it.how == "prepend"}
    it = activation_of(tmp_path_factory.getbasetemp(), exports, environ)
    spec = json.loads(json.dumps(kernel_of("k", "t", it).spec))
    assert values_of(it) == {
        name: string.Template(value).safe_substitute(environ) for name, value in spec["env"].items()
    }
